from .proportion import *
