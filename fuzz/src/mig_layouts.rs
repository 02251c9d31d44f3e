//! A user's file of MIG layouts.

use tessera_api::judge;
use tessera_api::mig::layout::{self, Rule};
use tessera_api::mig::placement::placement;
use tessera_api::mig::{PARTS, Part};

use crate::sentence;

/// Mistakes are sentences, and a placement that is found has every instance, none over another.
pub(crate) fn feed(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for (_, mistake) in judge::layout_file(&text) {
        sentence::check(&mistake.to_string());
    }
    for rule in layout::parse(&text).layouts.values().flatten() {
        PARTS.iter().for_each(|part| place(part, rule));
    }
}

fn place(part: &Part, rule: &Rule) {
    let instances = rule.gpu_instances();
    let Ok(placed) = placement(part, &instances) else {
        return;
    };
    for (profile, count) in &instances {
        let found = placed.iter().filter(|one| one.profile == *profile).count();
        assert_eq!(
            found, *count as usize,
            "{profile} of {rule:?} on {}",
            part.name
        );
    }
    let mut taken = 0_u32;
    for one in &placed {
        let slices = ((1 << one.size) - 1) << one.start;
        assert_eq!(taken & slices, 0, "{placed:?} on {}", part.name);
        taken |= slices;
    }
}
