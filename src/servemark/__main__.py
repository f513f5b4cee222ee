"""Entry point. `--version` is answered before anything else is imported."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        from servemark import __version__  # noqa: PLC0415 - nothing but the version is needed

        sys.stdout.write(f"servemark {__version__}\n")
        return
    try:
        from servemark.cli.lasting_stderr import let_stderr_go  # noqa: PLC0415 - keeps --version fast
        from servemark.cli.main import run_cli  # noqa: PLC0415
    except KeyboardInterrupt:  # nothing has begun
        sys.exit(130)
    let_stderr_go()
    sys.exit(run_cli(sys.argv[1:]))


if __name__ == "__main__":
    main()
