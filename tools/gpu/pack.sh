#!/bin/bash
# Packs vLLM, NIXL, servemark and weight-less models into one folder of some 45 MB, for a GPU host without a network.
#
#     tools/gpu/pack.sh TOKENIZER_DIR OUT [WORK]
#
# The host has Python 3.12 with torch 2.11 (CUDA 13), transformers, triton and their like; what it lacks is in wheels.txt.
# Needs here: a pip that knows the newest tags, a Python with hatchling, strip, readelf, unzip, xz. WORK keeps the downloads.
set -euo pipefail
tools=$(cd "$(dirname "$0")" && pwd)
project=$(cd "$tools/../.." && pwd)
tokenizer=$(realpath "$1"); mkdir -p "$2"; out=$(realpath "$2"); work=${3:-$(mktemp -d)}
mkdir -p "$work"/{vllm,wheels,nixl}; cd "$work"
platforms=$(for v in 2_39 2_35 2_34 2_31 2_28 2_27 2_26 2_24 2_17 2_12 2_5; do echo "--platform manylinux_${v}_x86_64"; done
            for v in 2014 2010 1; do echo "--platform manylinux${v}_x86_64"; done)
download() {
  # shellcheck disable=SC2086
  python3 -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 --implementation cp \
    --abi cp312 --abi abi3 --abi none $platforms "$@"
}
[ -n "$(ls vllm)" ] || download -d vllm vllm==0.26.0
[ -n "$(ls wheels)" ] || download -d wheels -r "$tools/wheels.txt"
[ -n "$(ls nixl)" ] || download -d nixl nixl==1.3.2 nixl-cu13==1.3.2

# vLLM for one dense bf16 model on Hopper: without FA2, FlashMLA, deep_gemm, the Rust front end and the swagger page; GPU code
# of sm_90 alone, of FlashAttention 3 only bf16 with head size 128. MoE, quantised weights and MLA need their code back.
rm -rf site; mkdir site
unzip -q vllm/*.whl -d site -x 'vllm/vllm_flash_attn/_vllm_fa2_C*' 'vllm/_flashmla*' 'vllm/_qutlass*' 'vllm/vllm-rs' \
  'vllm/_rust_tool_parser*' 'vllm/third_party/deep_gemm/*' 'vllm/third_party/fmha_sm100/*' \
  'vllm/entrypoints/serve/instrumentator/static/swagger*'
for name in _C_stable_libtorch _moe_C_stable_libtorch; do
  python3 "$tools/prune_cubins.py" "site/vllm/$name.abi3.so"; strip --strip-unneeded "site/vllm/$name.abi3.so"
done
python3 "$tools/prune_cubins.py" --fa3 site/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so
strip --strip-unneeded site/vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so

# What vLLM needs and the host lacks. tvm_ffi's testing library stays: its core links to it.
for wheel in wheels/*.whl; do unzip -q -o "$wheel" -d site; done
for data in site/*.data; do
  for part in purelib platlib; do if [ -d "$data/$part" ]; then cp -r "$data/$part/." site/; fi; done
  rm -rf "$data"
done
(cd site
 rm -rf xgrammar/lib/*.a xgrammar/include mistral_common/data/* pycountry/locales tvm_ffi/3rdparty tvm_ffi/src tvm_ffi/include
 find . -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -rf {} +
 find . -name '*.so' -size +200k -not -path './vllm/*' -exec strip --strip-unneeded {} \;)
mkdir -p site/bin
printf '#!/bin/sh\nexec python3 -m vllm.entrypoints.cli.main "$@"\n' > site/bin/vllm
printf '#!/bin/sh\nexec python3 -m servemark "$@"\n' > site/bin/servemark
chmod 755 site/bin/vllm site/bin/servemark
tar -cf - --owner=0 --group=0 -C site . | xz -T2 -6 > "$out/vllm.txz"

rm -rf nixl-whole nixl-small; mkdir nixl-whole
for wheel in nixl/*.whl; do unzip -q -o "$wheel" -d nixl-whole; done
python3 "$tools/nixl_closure.py" nixl-whole nixl-small
find nixl-small -name '*.so*' -size +200k -exec strip --strip-unneeded {} \; 2>/dev/null || true
tar -cf - --owner=0 --group=0 -C nixl-small . | xz -T2 -6 > "$out/nixl.txz"

"$tools/pack_servemark.sh" "$out"
rm -rf "$out/models"; python3 "$tools/weightless_models.py" "$tokenizer" "$out/models"
cp "$tools/unpack.sh" "$out/"
du -sb "$out"/*
