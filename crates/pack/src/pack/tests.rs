//! What earlier attempts left after a shard that is missing.

use super::*;
use crate::{Files, verify};

/// A data set of nine files, and a store of it without the manifest.
fn case() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let [data, store] = ["data", "store"].map(|name| folder.path().join(name));
    fs::create_dir_all(data.join("ant")).unwrap();
    for nth in 0..9_u8 {
        fs::write(data.join(format!("ant/{nth}.jpg")), vec![nth; 9000]).unwrap();
    }
    attempt(&data, &store, 1).unwrap();
    for name in MANIFEST_FILES {
        fs::remove_file(store.join(name)).unwrap();
    }
    assert!(store.join("00008.shard").exists());
    (folder, data, store)
}

fn attempt(data: &Path, store: &Path, shard_bytes: u64) -> Result<Packed, PackError> {
    let config = PackConfig { shard_bytes, n_threads: 2, ..PackConfig::default() };
    pack(&Files::open(data).unwrap(), store, &config, &mut |_| ())
}

/// Else they would be in the way of whoever adds to the store.
#[test]
fn what_follows_a_missing_shard_is_made_again_or_removed() {
    for (shard_bytes, n_shards) in [(1, 9), (1 << 20, 3)] {
        let (_folder, data, store) = case();
        fs::remove_file(store.join("00002.shard")).unwrap();
        let packed = attempt(&data, &store, shard_bytes).unwrap();
        assert_eq!(packed.progress.n_found_done, 2);
        assert_eq!(packed.manifest.shards.len(), n_shards);
        let names = names(&store).unwrap();
        for end in [".shard", ".index"] {
            let n = names.iter().filter(|name| name.ends_with(end)).count();
            assert_eq!(n, n_shards, "{names:?}");
        }
        assert_eq!(verify(&store, &mut |_| ()).unwrap().damages, []);
    }
}

/// They may be all that is left of other data.
#[test]
fn a_later_shard_of_other_data_is_not_overwritten() {
    let (_folder, data, store) = case();
    fs::remove_file(store.join("00002.shard")).unwrap();
    // Its records are not those of the data any more.
    fs::rename(data.join("ant/7.jpg"), data.join("ant/x.jpg")).unwrap();
    let before = fs::read(store.join("00007.shard")).unwrap();
    let error = attempt(&data, &store, 1 << 20).unwrap_err();
    assert!(
        matches!(&error, PackError::OtherShard { path, .. } if path.ends_with("00007.shard"))
    );
    assert_eq!(fs::read(store.join("00007.shard")).unwrap(), before);
    assert!(!store.join("00002.shard").exists());
}
