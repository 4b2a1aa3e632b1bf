# SPDX-License-Identifier: MIT
"""Builds the wheel with the standard library alone (PEP 517 and 660).

What goes into it: the package, _abi.py written from the C headers of this clone, and the shared
library, which is built by make where make and a C compiler are. PAGEDKV_BUNDLE names a built
library to take instead; "none" leaves it out, for a package that depends on the system's.

    build_backend.py FOLDER    writes package and dist-info to FOLDER, for packagers and tests
"""
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INCLUDE = ROOT / "include"
MAKE_VARIABLES = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "VARIANT")


class UnsupportedOperation(Exception):
    """What PEP 517 wants raised by a hook that cannot work."""


def _generate():
    if not INCLUDE.is_dir():
        raise SystemExit(f"pagedkv: {INCLUDE} is not there; the package is built in a clone")
    sys.path.insert(0, str(HERE))
    try:
        import generate
    finally:
        sys.path.remove(str(HERE))
    return generate.generate(INCLUDE).encode()


def _version():
    text = (INCLUDE / "pagedkv" / "base.h").read_text()
    return ".".join(re.search(rf"PKV_VERSION_{part} +(\d+)", text).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def _soname():
    major, minor, _ = _version().split(".")
    return f"libpagedkv.so.{major}" + (f".{minor}" if major == "0" else "")


def _library():
    """The shared library to bundle, or None."""
    chosen = os.environ.get("PAGEDKV_BUNDLE")
    if chosen == "none":
        return None
    if chosen:
        return Path(chosen)
    compiler = os.environ.get("CC", "cc").split()
    if not shutil.which("make") or not compiler or not shutil.which(compiler[0]):
        print("pagedkv: no make or no C compiler: the system's libpagedkv will be needed")
        return None
    environment = {k: v for k, v in os.environ.items() if k not in MAKE_VARIABLES}
    build = environment.pop("BUILD", None) or "build/release"
    subprocess.run(["make", f"-j{os.cpu_count() or 2}", "lib", f"BUILD={build}",
                    f"CC={' '.join(compiler)}"], cwd=ROOT, env=environment, check=True)
    return ROOT / build / f"libpagedkv.so.{_version()}"


def _without_debug(library):
    """The library's bytes, without debug information where strip is."""
    if not shutil.which("strip"):
        return Path(library).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(library, folder)
        subprocess.run(["strip", "--strip-debug", copy], check=True)
        return Path(copy).read_bytes()


def _files(library):
    """{path in the wheel: content}"""
    package = HERE / "pagedkv"
    files = {f"pagedkv/{path.name}": path.read_bytes() for path in sorted(package.iterdir())
             if path.suffix == ".py" and path.name != "_abi.py" or path.name == "py.typed"}
    files["pagedkv/_abi.py"] = _generate()
    if library is not None:
        files[f"pagedkv/{_soname()}"] = _without_debug(library)
    return files


def _metadata():
    lines = ["Metadata-Version: 2.1", "Name: pagedkv", f"Version: {_version()}",
             "Summary: Paged KV caches and grouped-query attention on CPUs", "License: MIT",
             "Requires-Python: >=3.9", "Requires-Dist: numpy",
             "Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text()]
    return "\n".join(lines).encode()


def _tag(library):
    if library is None:
        return "py3-none-any"
    return "py3-none-" + re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())


def _with_info(files, tag):
    """The files and those that say what they are."""
    info = f"pagedkv-{_version()}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: pagedkv\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"
    files = dict(files)
    files[f"{info}/METADATA"] = _metadata()
    files[f"{info}/WHEEL"] = wheel.encode()
    record = []
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}")
    files[f"{info}/RECORD"] = "\n".join(record + [f"{info}/RECORD,,", ""]).encode()
    return files


def _write_wheel(folder, files, tag):
    name = f"pagedkv-{_version()}-{tag}.whl"
    with zipfile.ZipFile(Path(folder) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in _with_info(files, tag).items():
            entry = zipfile.ZipInfo(path)  # a fixed date: the same sources give the same bytes
            entry.external_attr = (0o755 if ".so" in path else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = _library()
    return _write_wheel(wheel_directory, _files(library), _tag(library))


def build_sdist(sdist_directory, config_settings=None):
    raise UnsupportedOperation("the sources of this package are the clone")


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """The clone itself on the path; _abi.py and the library are written into it."""
    _write(HERE, _files(_library()))
    return _write_wheel(wheel_directory, {"pagedkv.pth": f"{HERE}\n".encode()}, "py3-none-any")


def _write(folder, files):
    for path, content in files.items():
        target = Path(folder) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)


if __name__ == "__main__":
    chosen = _library()
    _write(sys.argv[1], _with_info(_files(chosen), _tag(chosen)))
