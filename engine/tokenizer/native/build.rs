//! Finds the source of the Go module github.com/daulet/tokenizers at the version that go.mod
//! pins, so that its C ABI is compiled into this archive: two Rust archives in one binary clash.
use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=DAULET_DIR");
    let dir = match env::var("DAULET_DIR") {
        Ok(d) if !d.is_empty() => d,
        _ => go_module_dir("github.com/daulet/tokenizers"),
    };
    println!("cargo:rustc-env=DAULET_LIB={dir}/src/lib.rs");
    println!("cargo:rerun-if-changed={dir}/src/lib.rs");
}

fn go_module_dir(module: &str) -> String {
    let out = Command::new("go")
        .args(["list", "-m", "-f", "{{.Dir}}", module])
        .output()
        .expect("the go command is needed to find the tokenizer's source");
    assert!(out.status.success(), "go list -m {module}: {}", String::from_utf8_lossy(&out.stderr));
    let dir = String::from_utf8(out.stdout).expect("path is not UTF-8").trim().to_string();
    assert!(!dir.is_empty(), "{module} is not in the module cache: run go mod download");
    dir
}
