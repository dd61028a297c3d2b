//! Removal of files that the preparation leaves behind.

use super::*;

#[test]
fn helpers_of_earlier_attempts_go_with_the_next_clone_and_the_rest_at_the_end() {
    let sandbox = TestSandbox::new();
    let repository = sandbox.origin();
    let private = sandbox.inspect(Some(&repository)).private.unwrap();
    let private = Path::new(&private);
    for n in [2, 9, 10, 11] {
        std::fs::write(private.join(format!("credentials-{n}")), "secret").unwrap();
    }
    let (who, own) = (who(), Some("credentials-10"));
    let script = clone(
        &sandbox.workspace(),
        &private.display().to_string(),
        TASK,
        &who,
        &repository,
        own,
    );
    sandbox.ok(&script);
    let names = || {
        sandbox.ok(&format!(
            "ls -A {}",
            shell_quote(&private.display().to_string())
        ))
    };
    assert_eq!(names(), "clone.out\nclone.pid\ncloned\ncredentials-11\n");
    std::fs::write(private.join("setup.exit"), "0").unwrap();
    sandbox.ok(&remove_leftovers(TASK));
    assert_eq!(names(), "cloned\nsetup.exit\n");
    assert_eq!(
        sandbox.inspect(Some(&repository)).state,
        CheckoutState::Ours
    );
}
