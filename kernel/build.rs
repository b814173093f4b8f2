//! Builds the vDSO (`hal/vdso`) into a shared object that `memory/vdso.rs` includes. It is compiled by
//! the compiler that builds the kernel and linked by `ld.lld`, or `ld` where that is missing.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let folder = Path::new("../hal/vdso");
    let output = PathBuf::from(variable("OUT_DIR"));
    for name in ["x86_64.rs", "vdso.ld", "vdso.version"] {
        println!("cargo:rerun-if-changed={}", folder.join(name).display());
    }
    println!("cargo:rerun-if-changed=build.rs");

    let object = output.join("vdso.o");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .args(["--edition=2024", "--crate-name=vdso", "--crate-type=lib", "--emit=obj"])
        .args(["--target=x86_64-unknown-linux-gnu", "-Copt-level=2", "-Cpanic=abort"])
        .args(["-Crelocation-model=pic", "-Cdebuginfo=0", "-Coverflow-checks=off"])
        .args(["-Ccodegen-units=1", "-Cdebug-assertions=off", "-o"])
        .arg(&object)
        .arg(folder.join("x86_64.rs"));
    run(&mut compiler).unwrap_or_else(|error| panic!("the vDSO does not compile: {error}"));

    let link = |linker: &str| {
        let mut command = Command::new(linker);
        command
            .args(["-shared", "-soname", "linux-vdso.so.1", "--hash-style=both", "-Bsymbolic"])
            .args(["--build-id=none", "--no-undefined", "-z", "max-page-size=4096"])
            .args(["-z", "noexecstack", "--eh-frame-hdr", "--strip-all"])
            .arg("-T")
            .arg(folder.join("vdso.ld"))
            .arg("--version-script")
            .arg(folder.join("vdso.version"))
            .arg("-o")
            .arg(output.join("vdso.so"))
            .arg(&object);
        run(&mut command)
    };
    if let Err(first) = link("ld.lld") {
        link("ld").unwrap_or_else(|second| panic!("the vDSO does not link: {first}; {second}"));
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr)))
    }
}
