//! No fuzzer is needed to see again what one has found.

use tessera_fuzz::TARGETS;

#[test]
fn every_input_that_is_kept_holds() {
    for target in TARGETS {
        let mut fed = 0;
        for entry in std::fs::read_dir(target.kept()).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            (target.feed)(&std::fs::read(&path).unwrap());
            fed += 1;
        }
        assert!(fed > 0, "{} has no inputs", target.name);
    }
}
