# SPDX-License-Identifier: MIT
"""Writes pagedkv/_abi.py from the C headers: constants, structs and functions as ctypes has them.

    generate.py INCLUDE_FOLDER OUTPUT_FILE

The package is built from the headers each time, so its structs cannot differ from them; what this
reader makes of them is compared with the compiler's view by tests/test_layout.py. It reads the
style of these headers, not C: a declaration that it does not understand ends the build.
"""
import re
import sys
from pathlib import Path

HEADERS = ("base", "alloc", "pages", "slots", "attn", "select", "contract", "tier", "cache",
           "swap", "step", "prefix", "offload", "metrics", "save")

SCALARS = {
    "size_t": "c_size_t", "bool": "c_bool", "float": "c_float", "double": "c_double",
    "int": "c_int", "int32_t": "c_int32", "int64_t": "c_int64", "uint32_t": "c_uint32",
    "uint64_t": "c_uint64", "void": "None",
}


class HeaderError(Exception):
    """A declaration that this reader does not understand."""


def strip_comments(text):
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return text.replace("\\\n", " ")


def ctype_of(words, pointer):
    """The ctypes name of a type: `words` without const, and whether it is a pointer."""
    if pointer:
        return "c_char_p" if words == "char" else "c_void_p"
    if words in SCALARS:
        return SCALARS[words]
    if words.startswith("enum "):
        return "c_int"
    name = words[len("struct "):] if words.startswith("struct ") else words
    if re.fullmatch(r"pkv_\w+", name):
        return name
    raise HeaderError(f"type {words!r} is unknown")


def split_type(text):
    """'const struct pkv_x *const *' -> ('struct pkv_x', True)"""
    pointer = "*" in text or "[" in text
    text = re.sub(r"\bconst\b|\*|\[.*", " ", text)
    return " ".join(text.split()), pointer


def parse_fields(body):
    """Yields (name, ctypes expression) of each field of a struct."""
    for line in (part.strip() for part in body.split(";")):
        if not line:
            continue
        function = re.match(r"[\w ]+\*?\s*\(\*(\w+)\)\s*\(", line)
        if function:
            yield function.group(1), "c_void_p"
            continue
        first, *others = line.split(",")
        base, name = re.fullmatch(r"(.*?)(\**\w+(?:\[\w+\])?)", first.strip()).groups()
        words, _ = split_type(base)
        for declarator in [name] + [other.strip() for other in others]:
            star, field, count = re.fullmatch(r"(\**)(\w+)(?:\[(\w+)\])?", declarator).groups()
            ctype = ctype_of(words, bool(star) or "*" in base)
            yield field, f"{ctype} * {count}" if count else ctype


def parse_enum(body, text):
    """Yields (name, value) of each enumerator; the list of instruction sets is a macro."""
    value = 0
    body = re.sub(r"#.*", "", body)
    for item in (part.strip() for part in body.split(",")):
        match = re.fullmatch(r"(PKV_\w+)(?:\s*=\s*(-?\d+))?", item)
        if match:
            value = int(match.group(2)) if match.group(2) else value
            yield match.group(1), value
            value += 1
        elif item and "PKV_ISA_LIST" not in item:
            raise HeaderError(f"enumerator {item!r}")
    if "PKV_ISA_BEST" in body:
        for name, number in re.findall(r"ISA\((PKV_ISA_\w+), (\d+)", text):
            yield name, int(number)


def parse_function(declaration):
    """'enum pkv_status pkv_x(int a, void *b)' -> (name, result, [arguments])"""
    match = re.fullmatch(r"(.*?)\b(pkv_\w+)\((.*)\)", declaration)
    if not match:
        raise HeaderError(f"function {declaration!r}")
    result = ctype_of(*split_type(match.group(1)))
    arguments = []
    callbacks = re.sub(r"bool \(\*\w+\)\([^()]*\)", "void *callback", match.group(3))
    for argument in callbacks.split(","):
        if argument.strip() != "void":
            base = re.sub(r"\w+(\[\])?\s*$", r"\1", argument.strip())
            arguments.append(ctype_of(*split_type(base)))
    return match.group(2), result, arguments


def parse(text):
    """The constants, structs and functions of one header, in its order."""
    text = strip_comments(text)
    constants = [(name, int(value)) for name, value in
                 re.findall(r"#define (PKV_\w+) \(?(-?\d+)\)?\s*\n", text)]
    plain = re.sub(r"^\s*#\s*(define|if|ifdef|ifndef|else|elif|endif|undef|include).*$", "", text,
                   flags=re.M)
    for body in re.findall(r"enum pkv_\w+ \{(.*?)\};", plain, flags=re.S):
        constants += parse_enum(body, text)
    structs = [(name, list(parse_fields(body))) for name, body in
               re.findall(r"struct (pkv_\w+) \{(.*?)\n\}", plain, flags=re.S)]
    flat = " ".join(plain.split())
    functions = [parse_function(part) for part in
                 re.findall(r"PKV_API (?:PKV_NODISCARD )?(.*?);", flat)]
    return constants, structs, functions


def as_python(headers):
    constants, structs, functions = [], [], []
    for text in headers:
        for total, part in zip((constants, structs, functions), parse(text)):
            total += part
    lines = ['"""Written by generate.py from the C headers; not edited by hand."""',
             "from ctypes import (Structure, c_bool, c_char_p, c_double, c_float, c_int, c_int32,",
             "                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p)", ""]
    lines += [f"{name} = {value}" for name, value in constants]
    for name, fields in structs:
        lines += ["", "", f"class {name}(Structure):", "    _fields_ = ["]
        lines += [f'        ("{field}", {ctype}),' for field, ctype in fields]
        lines += ["    ]"]
    lines += ["", "", f"STRUCTS = ({', '.join(name for name, _ in structs)})", "", "FUNCTIONS = {"]
    for name, result, arguments in functions:
        lines += [f'    "{name}": ({result}, ({"".join(a + ", " for a in arguments).strip()})),']
    return "\n".join(lines + ["}", ""])


def generate(include):
    """The text of _abi.py for the headers under `include`."""
    return as_python([(Path(include) / "pagedkv" / f"{name}.h").read_text() for name in HEADERS])


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(generate(sys.argv[1]))
