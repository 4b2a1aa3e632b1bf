// SPDX-License-Identifier: MIT
//! The raw declarations against what a C compiler makes of the headers.
use pagedkv::ffi;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn include_folder() -> PathBuf {
    match std::env::var_os("PAGEDKV_INCLUDE_DIR") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include"),
    }
}

/// A C program that prints what `lines_of_rust` says.
fn program() -> String {
    let mut text = String::from("#include <pagedkv.h>\n#include <stdio.h>\nint main(void)\n{\n");
    for place in ffi::places() {
        let (s, f) = (place.structure, place.field);
        if f.is_empty() {
            writeln!(text, "printf(\"{s} 0 %zu\\n\", sizeof(struct {s}));").unwrap();
        } else {
            writeln!(
                text,
                "printf(\"{s}.{f} %zu %zu\\n\", offsetof(struct {s}, {f}), \
                 sizeof ((struct {s} *)0)->{f});"
            )
            .unwrap();
        }
    }
    for (name, _) in ffi::CONSTANTS {
        writeln!(text, "printf(\"{name} %d\\n\", (int){name});").unwrap();
    }
    text + "return 0;\n}\n"
}

fn lines_of_rust() -> Vec<String> {
    let places = ffi::places().into_iter().map(|place| match place.field {
        "" => format!("{} 0 {}", place.structure, place.size),
        field => format!("{}.{} {} {}", place.structure, field, place.offset, place.size),
    });
    let constants = ffi::CONSTANTS.iter().map(|(name, value)| format!("{} {}", name, value));
    places.chain(constants).collect()
}

#[test]
fn declarations_are_those_of_the_headers() {
    let folder = std::env::temp_dir().join(format!("pagedkv-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program()).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
    let mut words = compiler.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .arg("-I")
        .arg(include_folder())
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .status()
        .expect("a C compiler");
    assert!(status.success(), "the C program does not compile");
    let output = Command::new(&binary).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let of_c: Vec<&str> = text.lines().collect();
    assert!(of_c.len() > 200, "only {} lines", of_c.len());
    assert_eq!(lines_of_rust(), of_c);
}

#[test]
fn every_function_declared_is_in_the_headers() {
    let declared = include_str!("../src/ffi.rs").lines().filter_map(|line| {
        let name = line.trim().strip_prefix("pub fn pkv_")?;
        name.split('(').next()
    });
    let mut headers = String::new();
    for entry in std::fs::read_dir(include_folder().join("pagedkv")).unwrap() {
        headers += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    let mut count = 0;
    for name in declared {
        assert!(headers.contains(&format!("pkv_{}(", name)), "pkv_{} is not there", name);
        count += 1;
    }
    assert!(count > 20);
}
