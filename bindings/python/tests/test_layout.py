# SPDX-License-Identifier: MIT
"""Structs, constants and prototypes of the binding against what the C compiler sees."""
import ctypes
import inspect
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import pagedkv
from pagedkv import _abi
from support import ROOT

COMPILER = os.environ.get("CC", "cc").split()
INCLUDE = ROOT / "include"


def layout_program():
    lines = ["#include <pagedkv.h>", "#include <stdio.h>", "int main(void) {"]
    for struct in _abi.STRUCTS:
        name = f"struct {struct.__name__}"
        lines.append(f'printf("{struct.__name__} %zu\\n", sizeof({name}));')
        for field, _ in struct._fields_:
            lines.append(f'printf("{struct.__name__}.{field} %zu %zu\\n",'
                         f" offsetof({name}, {field}), sizeof((({name} *)0)->{field}));")
    for name in constants():
        lines.append(f'printf("{name} %lld\\n", (long long)({name}));')
    return "\n".join(lines + ["return 0; }", ""])


def constants():
    return [name for name in vars(_abi) if name.startswith("PKV_")]


def layout_of_binding():
    lines = []
    for struct in _abi.STRUCTS:
        lines.append(f"{struct.__name__} {ctypes.sizeof(struct)}")
        for field, _ in struct._fields_:
            at = getattr(struct, field)
            lines.append(f"{struct.__name__}.{field} {at.offset} {at.size}")
    return lines + [f"{name} {getattr(_abi, name)}" for name in constants()]


C_TYPES = {ctypes.c_void_p: "void *", ctypes.c_char_p: "const char *", ctypes.c_int: "int32_t",
           ctypes.c_int64: "int64_t", ctypes.c_uint32: "uint32_t", ctypes.c_uint64: "uint64_t",
           ctypes.c_bool: "bool", ctypes.c_float: "float"}


def c_type(ctype):
    if ctype is None:
        return "void"
    if ctype in C_TYPES:
        return C_TYPES[ctype]
    return f"struct {ctype.__name__}"


def prototype_program():
    """Each function called with variables of the types that the binding passes."""
    lines = ["#include <pagedkv.h>", "void f(void);", "void f(void) {"]
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        lines.append("{")
        for i, argument in enumerate(arguments):
            lines.append(f"{c_type(argument)} a{i} = {{0}};")
        call = f"{name}({', '.join(f'a{i}' for i in range(len(arguments)))})"
        if result is None:
            lines.append(f"{call};")
        else:
            lines.append(f"{c_type(result)} r = {call}; (void)r;")
            lines.append(f"_Static_assert(sizeof({call}) == {ctypes.sizeof(result)}, \"{name}\");")
        lines.append("}")
    return "\n".join(lines + ["}", ""])


@unittest.skipUnless(shutil.which(COMPILER[0]) and INCLUDE.exists(), "no C compiler or no headers")
class Layout(unittest.TestCase):
    def compile(self, text, *options):
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "layout.c"
            source.write_text(text)
            done = subprocess.run(COMPILER + ["-std=c17", f"-I{INCLUDE}", *options, str(source),
                                              "-o", str(source.with_suffix(""))],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            if "-c" in options:
                return ""
            return subprocess.run([str(source.with_suffix(""))], capture_output=True, text=True,
                                  check=True).stdout

    def test_structs_and_constants_are_those_of_the_compiler(self):
        self.assertGreater(len(_abi.STRUCTS), 30)
        self.assertEqual(self.compile(layout_program()).splitlines(), layout_of_binding())

    def test_prototypes_are_those_of_the_headers(self):
        self.compile(prototype_program(), "-c", "-Wall", "-Wextra", "-Werror", "-Wconversion",
                     "-Wno-unused-value", "-Wno-missing-braces", "-Wno-enum-conversion")

    def test_every_public_function_and_struct_is_there(self):
        text = "".join(path.read_text() for path in sorted(INCLUDE.glob("pagedkv/*.h")))
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
        declared = set(re.findall(r"PKV_API[^;(]*?\b(pkv_\w+)\(", text))
        self.assertEqual(declared, set(_abi.FUNCTIONS))
        structs = set(re.findall(r"struct (pkv_\w+) \{", text))
        self.assertEqual(structs, {struct.__name__ for struct in _abi.STRUCTS})


#: A struct, the class that stands for it, and the fields that it has in another way, or not on
#: purpose.
CLASSES = (
    ("pkv_cache_config", "CacheConfig", "num_groups num_layers hooks fingerprint_bytes "
     "num_tiers"),
    ("pkv_group_config", "Group", ""),
    ("pkv_state_view", "StateView", "first_layer state_stride_bytes layer_stride_bytes"),
    ("pkv_layer_config", "Layer", "shares_kv"),
    ("pkv_attn_constants", "Constants", "head_sink_count rope_dtype rope_positions rope_width "
     "q_norm_gain_dtype k_norm_gain_dtype q_norm_gain_count k_norm_gain_count k_scale_count "
     "v_scale_count"),
    ("pkv_seq_options", "Options", "namespace_fields num_namespace_fields"),
    ("pkv_seq_info", "SequenceInfo", ""), ("pkv_admission", "Admission", ""),
    ("pkv_probe", "Probe", ""), ("pkv_shortage", "Shortage", ""), ("pkv_stats", "Stats", ""),
    ("pkv_group_usage", "Usage", ""), ("pkv_field_usage", "FieldUsage", ""),
    ("pkv_flush_report", "FlushReport", ""), ("pkv_cache_sizes", "Sizes", ""),
    ("pkv_block_info", "BlockInfo", ""), ("pkv_event", "Event", ""),
    ("pkv_disk_config", "DiskTier", ""), ("pkv_redis_config", "RedisTier", ""),
    ("pkv_ticket_info", "TicketInfo", ""), ("pkv_tier_stats", "TierStats", ""),
    ("pkv_step_view", "StepView", "table_rows table_stride max_blocks num_copies first_layer "
     "layer_stride_bytes bidirectional cu_bidirectional"),
)


class Fields(unittest.TestCase):
    def test_every_field_of_the_structs_has_its_name_in_a_class(self):
        """Layouts follow the headers by themselves, names of new fields do not: they are added in
        _config.py and _records.py."""
        for struct, name, others in CLASSES:
            have = set(inspect.signature(getattr(pagedkv, name)).parameters)
            declared = {field for field, _ in getattr(_abi, struct)._fields_}
            self.assertEqual(declared - have - set(others.split()) - {"size", "reserved"}, set(),
                             f"{name} lacks fields of struct {struct}")
