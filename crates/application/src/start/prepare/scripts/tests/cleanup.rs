//! Removal of files that the preparation leaves behind.

use super::*;

#[test]
fn output_of_a_start_goes_at_its_end_and_marks_stay() {
    let sandbox = TestSandbox::new();
    let repository = sandbox.origin();
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    sandbox.ok(&sandbox.clone(&repository, &private));
    let names = || sandbox.ok(&format!("ls -A {}", shell_quote(&private)));
    assert_eq!(names(), "clone.out\nclone.pid\ncloned\n");
    std::fs::write(Path::new(&private).join("setup.exit"), "0").unwrap();
    sandbox.ok(&remove_leftovers(TASK));
    assert_eq!(names(), "cloned\nsetup.exit\n");
    assert_eq!(
        sandbox.inspect(Some(&repository)).state,
        CheckoutState::Ours
    );
}
