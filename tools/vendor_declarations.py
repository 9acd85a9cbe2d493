"""Extracts the declarations that kernels/cuda/vendor.h copies from NVIDIA's headers.

tests/cuda/test_vendor.py compares them. The headers are in wheels of 600 MB.

  pip download --no-deps nvidia-cusolver==12.0.4.66 nvidia-cublas==13.1.1.3
  for wheel in nvidia_cu*.whl; do python -m zipfile -e "$wheel" .; done
  python tools/vendor_declarations.py nvidia/cu13/include /usr/local/cuda/include

This rewrites tests/cuda/vendor_declarations.inc. It holds the functions and enumerators that
tests/cuda/vendor_prototypes.cc names, and the types of their parameters. Names of parameters are
left out. The last folder is a toolkit's, for cuda_runtime_api.h.
"""

import argparse
import pathlib
import re
import subprocess
import textwrap
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).parents[1]
PROTOTYPES = ROOT / "tests/cuda/vendor_prototypes.cc"
DECLARATIONS = ROOT / "tests/cuda/vendor_declarations.inc"
# Words of a type that are not its name.
QUALIFIERS = {"const", "signed", "unsigned"}
# Types of C++ or its headers, and the vendor's structures that are passed as they are.
KNOWN = {"void", "char", "int", "long", "int64_t", "size_t", "float", "double"}
STRUCTURES = ("cuComplex", "cuDoubleComplex")


def type_of(parameter: str) -> str:
  """Returns a parameter's type in one spelling, with or without the parameter's name."""
  arrays = len(re.findall(r"\[\w*\]", parameter))
  parameter = re.sub(r"\[\w*\]", "", parameter)
  parameter = re.sub(r"\blong long( int)?\b", "long_long", parameter)  # one word like the others
  words = re.findall(r"\w+", parameter)
  if len([word for word in words if word not in QUALIFIERS]) > 1:
    parameter = re.sub(r"\w+\s*$", "", parameter)
  parameter = re.sub(r"\s*\*\s*", "* ", f"{parameter}{'*' * arrays}")
  parameter = parameter.replace("long_long", "long long")
  return re.sub(r"\* (?=\*|$)", "*", " ".join(parameter.split()))


def wrapped(declaration: str) -> str:
  return textwrap.fill(declaration, 100, subsequent_indent="    ", break_long_words=False)


def type_declaration(name: str, statements: list[str], enumerators: set[str]) -> str:
  """Returns the declaration of an enumeration with these values, or of a handle."""
  for text in (x for x in statements if x.endswith(name)):
    if structure := re.search(rf"typedef\s+struct\s+(\w+)\s*\*\s*{name}$", text):
      return f"typedef struct {structure[1]}* {name};"
    tag = re.search(rf"typedef\s+enum\s+(\w+)\s+{name}$", text)
    body = next((x for x in statements if tag and re.search(rf"enum\s+{tag[1]}\s*{{", x)), text)
    if values := re.search(r"enum\s*\w*\s*{([^}]*)}", body):
      kept = ", ".join(
          f"{x} = {value}" for x, value in re.findall(r"(\w+)\s*=\s*(\d+)", values[1])
          if x in enumerators)
      return f"typedef enum {{ {kept} }} {name};"
  raise ValueError(f"no enumeration and no handle {name}")


def declarations(folders: Iterable[str | pathlib.Path]) -> str:
  """Returns the declarations from the headers in these folders."""
  system = [x for folder in folders for x in ("-isystem", str(folder))]
  compiler = ["c++", "-std=c++20", "-E", f"-I{ROOT}", *system, str(PROTOTYPES)]

  def preprocessed(option: str) -> str:
    done = subprocess.run([*compiler, option], capture_output=True, text=True, check=True)
    return done.stdout

  text, macros = preprocessed("-P"), preprocessed("-dM")
  statements = text.split(";")
  source = PROTOTYPES.read_text() + (ROOT / "kernels/cuda/vendor.h").read_text()
  enumerators = set(re.findall(r"\b(?:CUBLAS|CUSOLVER|CUDA)_\w+", source))
  functions, types = [], set()
  for name in dict.fromkeys(re.findall(r"decltype\(&(c\w+)\)", text)):
    statement = next(x for x in statements if f"{name}(" in x)
    result, parameters = re.search(rf"(\w+)\s+{name}\(([^)]*)\)", statement).groups()
    parameters = [type_of(x) for x in parameters.split(",")]
    functions.append(wrapped(f"{result} {name}({', '.join(parameters)});"))
    types.update([result], *(re.findall(r"\w+", x) for x in parameters))
  # vendor.h also takes these types from the runtime's headers.
  types |= {"cudaStream_t", "cudaDataType"}
  lines = [f"struct {name};" for name in STRUCTURES]
  for name in sorted(types - KNOWN - QUALIFIERS - set(STRUCTURES)):
    lines.append(wrapped(type_declaration(name, statements, enumerators)))
  versions = [
      re.search(rf"#define {library}_VER_{part} \d+", macros)[0]
      for library in ("CUSOLVER", "CUBLAS") for part in ("MAJOR", "MINOR", "PATCH", "BUILD")]
  return "\n".join(["// By tools/vendor_declarations.py.", *versions, *lines, *functions]) + "\n"


def main() -> None:
  parser = argparse.ArgumentParser(description="Extracts what NVIDIA's headers declare.")
  parser.add_argument("folders", nargs="+", help="with cusolverDn.h, cublas_v2.h and the runtime's")
  DECLARATIONS.write_text(declarations(parser.parse_args().folders))


if __name__ == "__main__":
  main()
