// SPDX-License-Identifier: MIT
//! Tells cargo where libpagedkv is: in PAGEDKV_LIB_DIR, or where pkg-config says, or where the
//! linker looks by itself.
use std::process::Command;

fn by_pkg_config() -> Option<String> {
    let output = Command::new("pkg-config").args(["--variable=libdir", "pagedkv"]).output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    let folder = folder.trim();
    (output.status.success() && !folder.is_empty()).then(|| folder.to_string())
}

fn main() {
    println!("cargo:rerun-if-env-changed=PAGEDKV_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rerun-if-changed=build.rs");
    if let Some(folder) = std::env::var("PAGEDKV_LIB_DIR").ok().or_else(by_pkg_config) {
        println!("cargo:rustc-link-search=native={}", folder);
    }
    println!("cargo:rustc-link-lib=dylib=pagedkv");
}
