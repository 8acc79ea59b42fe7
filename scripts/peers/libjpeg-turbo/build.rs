//! Compiles `src/decode.c` and links it with the libjpeg-turbo of the system, or with the one
//! below `LIBJPEG_TURBO` (`include/jpeglib.h`, `lib/libjpeg.*`).

fn main() {
    println!("cargo::rerun-if-changed=src/decode.c");
    println!("cargo::rerun-if-env-changed=LIBJPEG_TURBO");
    let mut build = cc::Build::new();
    if let Ok(prefix) = std::env::var("LIBJPEG_TURBO") {
        build.include(format!("{prefix}/include"));
        println!("cargo::rustc-link-search=native={prefix}/lib");
    }
    build.file("src/decode.c").compile("decode");
    println!("cargo::rustc-link-lib=jpeg");
}
