//! The attacks: what each changes, and what may be left of the cache.

use super::*;

const BOTH_LOADS: &[Load] = &[Load::Idle, Load::Writing];
const WRITING_FIRST: &[Load] = &[Load::Writing, Load::Idle];
const STOP: &[End] = &[End::Stop];
const KILL_FIRST: &[End] = &[End::Kill, End::Stop];

/// All of them.
pub fn attacks() -> Vec<Attack> {
    [rollbacks(), restored_files()].concat()
}

fn rollbacks() -> Vec<Attack> {
    let base = Attack {
        loads: BOTH_LOADS,
        expected: COLD,
        ..ATTACK
    };
    vec![Attack {
        name: "btrfs_snapshot_put_back",
        file_system: FileSystem::Btrfs,
        loads: WRITING_FIRST,
        ends: KILL_FIRST,
        live: |scene| {
            let volume = &scene.volume;
            volume.snapshot(&volume.top(), &volume.folder().join("before"))
        },
        down: |scene| {
            let volume = &scene.volume;
            volume.put_back_subvolume(&volume.folder().join("before"), &volume.top())
        },
        quick: Some(Flavour::MariaDb1011),
        ..base
    }]
}

fn restored_files() -> Vec<Attack> {
    vec![Attack {
        name: "same_second",
        file_system: FileSystem::Ext4WholeSeconds,
        ends: STOP,
        before: copy_hot,
        // A change late in a second; the stop and the restore follow in the same one.
        live: |scene| {
            let server = scene.server()?;
            server.sql("UPDATE d.hot SET v = v + 1 WHERE id BETWEEN 100 AND 110")?;
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            std::thread::sleep(Duration::from_millis(1050 - u64::from(now.subsec_millis())));
            Ok(())
        },
        down: write_over_hot,
        // Its times are whole seconds.
        expected: COLD,
        quick: Some(Flavour::MySql97),
        ..ATTACK
    }]
}

/// Keeps version 0 of the table's file.
fn copy_hot(scene: &mut Scene) -> Outcome {
    run(Command::new("cp")
        .args(["-a", "--reflink=never"])
        .arg(scene.hot())
        .arg(scene.aside("hot")))
}

/// Writes version 0 over the same inode.
fn write_over_hot(scene: &mut Scene) -> Outcome {
    let bytes = std::fs::read(scene.aside("hot"))?;
    let file = std::fs::File::options().write(true).open(scene.hot())?;
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0)?;
    Ok(())
}
