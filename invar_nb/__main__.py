"`python -m invar_nb` is the command `invar-nb`."

import sys

from invar_nb.shell.cli import main

sys.exit(main())
