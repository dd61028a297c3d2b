//! The migrations are embedded by a macro, which cargo does not see.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
