//! Where etcd keeps its data: in memory when there is enough, because without that the disk decides how fast everything is.

use std::path::{Path, PathBuf};

use crate::process::Identity;

const SHARED_MEMORY: &str = "/dev/shm";
const PREFIX: &str = "tessera-lab-";
/// A lab with 1,000 nodes and 8,000 pods needs about 600 MB.
const ENOUGH: u64 = 2 << 30;

/// A directory for the lab that this process owns: on /dev/shm, else in the lab's directory.
pub(super) fn choose(dir: &Path) -> PathBuf {
    sweep();
    let Some(me) = Identity::of(std::process::id()) else {
        return dir.join("etcd");
    };
    let shared = Path::new(SHARED_MEMORY).join(format!("{PREFIX}{}", me.pid()));
    let roomy = rustix::fs::statvfs(SHARED_MEMORY)
        .is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) >= ENOUGH);
    if roomy && std::fs::create_dir(&shared).is_ok() && me.save(&shared.join("owner")).is_ok() {
        return shared;
    }
    dir.join("etcd")
}

/// Removes the data of labs whose agent was killed.
pub(crate) fn sweep() {
    let Ok(entries) = std::fs::read_dir(SHARED_MEMORY) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        // A directory without an owner file is one that is being made, or somebody else's.
        if Identity::load(&entry.path().join("owner")).is_some_and(|owner| !owner.is_alive()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
