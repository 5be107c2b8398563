//! The attacks: what each changes, and which cached pages may survive.

use integration_tests::copies;
use integration_tests::volumes::{Mounted, needs_device_mapper};

use super::*;

const BOTH_LOADS: &[Load] = &[Load::Idle, Load::Writing];
const WRITING_FIRST: &[Load] = &[Load::Writing, Load::Idle];
const STOP: &[End] = &[End::Stop];
const KILL: &[End] = &[End::Kill];
const KILL_FIRST: &[End] = &[End::Kill, End::Stop];
const JOURNALED: [FileSystem; 3] = [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs];

/// All of them.
pub fn attacks() -> Vec<Attack> {
    [
        rollbacks(),
        devices(),
        restored_files(),
        same_bytes(),
        other_runs(),
        rolled_back_caches(),
        tokens(),
        several_file_systems(),
    ]
    .concat()
}

/// The same attack on several file systems.
fn on(file_systems: &[FileSystem], attack: Attack) -> Vec<Attack> {
    let of = |file_system: &FileSystem| Attack {
        file_system: *file_system,
        ..attack
    };
    file_systems.iter().map(of).collect()
}

/// The same attack on each file system. Both ways to end the server are tried on ext4.
fn on_each(attack: Attack) -> Vec<Attack> {
    [
        (FileSystem::Ext4, attack.ends),
        (FileSystem::Xfs, STOP),
        (FileSystem::Btrfs, KILL),
    ]
    .into_iter()
    .filter(|(_, ends)| attack.ends.iter().any(|end| ends.contains(end)))
    .map(|(file_system, ends)| Attack {
        file_system,
        ends,
        ..attack
    })
    .collect()
}

/// Changes the data after a snapshot, and caches the new version. The writers do so anyway.
fn move_on(scene: &Scene) -> Outcome {
    if scene.load == Load::Writing {
        return Ok(());
    }
    let server = scene.server()?;
    server.sql("UPDATE d.hot SET v = v + 3 WHERE id % 7 = 0")?;
    sql::write_dirty_pages(server)?;
    read_often(server)?;
    taken::expect_written(server)
}

fn rollbacks() -> Vec<Attack> {
    let btrfs = Attack {
        file_system: FileSystem::Btrfs,
        loads: BOTH_LOADS,
        live: |scene| {
            let volume = &scene.volume;
            volume.snapshot(&volume.top(), &volume.folder().join("before"))?;
            move_on(scene)
        },
        expected: COLD,
        ..ATTACK
    };
    vec![
        Attack {
            name: "btrfs_snapshot_put_back",
            loads: WRITING_FIRST,
            ends: KILL_FIRST,
            down: |scene| {
                let volume = &scene.volume;
                volume.put_back_subvolume(&volume.folder().join("before"), &volume.top())
            },
            quick: Some(Flavour::MariaDb1011),
            ..btrfs
        },
        Attack {
            name: "btrfs_older_snapshot_put_back",
            loads: BOTH_LOADS,
            before: |scene| {
                let volume = &scene.volume;
                volume.snapshot(&volume.top(), &volume.folder().join("before"))
            },
            live: nothing,
            down: |scene| {
                let volume = &scene.volume;
                volume.put_back_subvolume(&volume.folder().join("before"), &volume.top())
            },
            ..btrfs
        },
        Attack {
            name: "btrfs_snapshot_mounted",
            before: |scene| mount_subvolume(scene, "top"),
            down: |scene| {
                run(Command::new("umount").arg(scene.volume.top()))?;
                mount_subvolume(scene, "before")
            },
            ..btrfs
        },
        Attack {
            name: "btrfs_nested_put_back",
            loads: &[Load::Idle],
            ends: STOP,
            before: |scene| {
                let schema = scene.data().join("d");
                let old = scene.data().join("old");
                std::fs::rename(&schema, &old)?;
                scene.volume.btrfs(&["subvolume", "create"], &[&schema])?;
                run(Command::new("chattr").arg("+C").arg(&schema))?;
                run(Command::new("cp")
                    .args(["-a", "--reflink=never"])
                    .arg(old.join("."))
                    .arg(&schema))?;
                Ok(std::fs::remove_dir_all(old)?)
            },
            live: |scene| {
                let before = scene.volume.folder().join("before");
                scene.volume.snapshot(&scene.data().join("d"), &before)?;
                move_on(scene)
            },
            down: |scene| {
                let before = scene.volume.folder().join("before");
                let schema = scene.data().join("d");
                scene.volume.put_back_subvolume(&before, &schema)
            },
            ..btrfs
        },
    ]
}

/// Mounts a subvolume of the volume over [`Volume::top`].
fn mount_subvolume(scene: &mut Scene, name: &str) -> Outcome {
    run(Command::new("mount")
        .args(["-o", &format!("subvol={name}")])
        .args([scene.volume.device(), &scene.volume.top()]))
}

fn copy_live_image(scene: &mut Scene) -> Outcome {
    scene.volume.copy_image(&scene.aside("image"))?;
    move_on(scene)
}

fn remount(scene: &mut Scene) -> Outcome {
    scene.volume.unmounted(|_| Ok(()))
}

/// Disks that are restored or remounted.
fn devices() -> Vec<Attack> {
    let base = Attack {
        loads: BOTH_LOADS,
        live: copy_live_image,
        expected: COLD,
        ..ATTACK
    };
    let journaled = [FileSystem::Ext4, FileSystem::Xfs];
    let mut attacks = on(
        &journaled,
        Attack {
            name: "disk_put_back_and_remounted",
            down: |scene| {
                let image = scene.aside("image");
                scene
                    .volume
                    .unmounted(|volume| volume.put_back_image(&image))
            },
            ..base
        },
    );
    attacks[0].quick = Some(Flavour::MariaDb1011);
    attacks.extend(on(
        &JOURNALED,
        Attack {
            name: "remounted_after_stop",
            ends: STOP,
            live: nothing,
            down: remount,
            expected: WARM,
            costs_only_warmth: true,
            ..base
        },
    ));
    attacks.extend(on(
        &journaled,
        Attack {
            name: "remounted_after_kill",
            ends: KILL,
            live: nothing,
            down: remount,
            costs_only_warmth: true,
            ..base
        },
    ));
    attacks.extend(on(
        &JOURNALED,
        Attack {
            name: "remounted_read_only_and_back",
            live: nothing,
            down: |scene| {
                for options in ["remount,ro", "remount,rw"] {
                    run(Command::new("mount")
                        .args(["-o", options])
                        .arg(scene.volume.folder()))?;
                }
                Ok(())
            },
            expected: WARM,
            ..base
        },
    ));
    attacks.extend([
        Attack {
            name: "disk_put_back_while_mounted",
            loads: &[Load::Idle],
            down: |scene| scene.volume.put_back_image(&scene.aside("image")),
            expected: NOT_COVERED,
            ..base
        },
        Attack {
            name: "disk_put_back_while_mounted_then_remounted",
            loads: &[Load::Idle],
            down: |scene| {
                run(Command::new("sync").arg("-f").arg(scene.volume.folder()))?;
                scene.volume.put_back_image(&scene.aside("image"))?;
                remount(scene)
            },
            ..base
        },
        Attack {
            name: "dm_snapshot_merged",
            loads: &[Load::Idle],
            ends: STOP,
            before: |_| {
                needs_device_mapper()?;
                Err(skip_allowed("merging a dm-snapshot is not implemented"))
            },
            ..base
        },
        Attack {
            name: "clock_stepped_back",
            loads: &[Load::Idle],
            ends: STOP,
            before: |_| {
                Err(skip_allowed(
                    "CLOCK_REALTIME is the machine's: no namespace has one of its own",
                ))
            },
            ..base
        },
    ]);
    attacks
}

/// Keeps version 0 of the table's file.
fn copy_hot(scene: &mut Scene) -> Outcome {
    run(Command::new("cp")
        .args(["-a", "--reflink=never"])
        .arg(scene.hot())
        .arg(scene.aside("hot")))
}

/// Writes version 0 over a file and keeps its inode.
fn write_over(scene: &Scene, path: &Path) -> Outcome {
    let bytes = std::fs::read(scene.aside("hot"))?;
    let file = std::fs::File::options().write(true).open(path)?;
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0)?;
    Ok(())
}

fn kept(scene: &Scene) -> PathBuf {
    scene.volume.top().join("kept.ibd")
}

/// Older contents replace the table's file.
fn restored_files() -> Vec<Attack> {
    let base = Attack {
        before: copy_hot,
        expected: HOT_COLD,
        ..ATTACK
    };
    let mut attacks = vec![Attack {
        name: "same_second",
        file_system: FileSystem::Ext4WholeSeconds,
        ends: STOP,
        // A change late in a second. The stop and the restore follow in the next one.
        live: |scene| {
            let server = scene.server()?;
            std::thread::sleep(Duration::from_secs(3));
            server.sql("UPDATE d.hot SET v = v + 1 WHERE id BETWEEN 100 AND 110")?;
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            std::thread::sleep(Duration::from_millis(1050 - u64::from(now.subsec_millis())));
            Ok(())
        },
        down: |scene| {
            use std::os::unix::fs::MetadataExt;
            let changed = || anyhow::Ok(std::fs::metadata(scene.hot())?.ctime());
            let before = changed()?;
            write_over(scene, &scene.hot())?;
            let is_too_late = changed()? != before;
            scene.is_too_late = is_too_late;
            Ok(())
        },
        // All times are whole seconds.
        expected: COLD,
        quick: Some(Flavour::MariaDb1011),
        ..base
    }];
    let over_hot: [(&'static str, Step); 8] = [
        ("written_over_times_put_back", |scene| {
            let times = scene.aside("times");
            run(Command::new("cp")
                .args(["-a"])
                .args([scene.hot(), times.clone()]))?;
            write_over(scene, &scene.hot())?;
            run(Command::new("touch").arg("-r").args([times, scene.hot()]))
        }),
        ("cp_preserve", |scene| {
            run(Command::new("cp")
                .arg("-p")
                .args([scene.aside("hot"), scene.hot()]))
        }),
        ("dd", |scene| {
            run(Command::new("dd")
                .args(["bs=1M", "conv=notrunc,fsync"])
                .arg(format!("if={}", text(&scene.aside("hot"))))
                .arg(format!("of={}", text(&scene.hot()))))
        }),
        ("dd_direct", |scene| {
            run(Command::new("dd")
                .args(["bs=64K", "conv=notrunc", "oflag=direct"])
                .arg(format!("if={}", text(&scene.aside("hot"))))
                .arg(format!("of={}", text(&scene.hot()))))
        }),
        ("rsync_inplace_times", |scene| {
            run(Command::new("rsync")
                .args(["--inplace", "--times", "--ignore-times"])
                .args([scene.aside("hot"), scene.hot()]))
        }),
        ("tar", |scene| {
            let folder = scene.aside("tar");
            std::fs::create_dir(&folder)?;
            std::fs::rename(scene.aside("hot"), folder.join("hot.ibd"))?;
            let archive = folder.join("archive");
            let schema = scene.data().join("d");
            let tar = |option: &str, at: &Path| {
                run(Command::new("tar")
                    .arg(option)
                    .arg(&archive)
                    .arg("-C")
                    .arg(at)
                    .arg("hot.ibd"))
            };
            tar("-cf", &folder)?;
            tar("-xpf", &schema)
        }),
        ("renamed_over", |scene| {
            run(Command::new("cp")
                .args(["-a"])
                .args([scene.aside("hot"), kept(scene)]))?;
            Ok(std::fs::rename(kept(scene), scene.hot())?)
        }),
        ("stored_through_mmap", |scene| {
            let script = "import mmap, sys\n\
                          new = open(sys.argv[1], 'rb').read()\n\
                          with open(sys.argv[2], 'r+b') as f:\n  \
                              m = mmap.mmap(f.fileno(), len(new)); m[:] = new; m.flush()";
            run(Command::new("python3")
                .args(["-c", script])
                .args([scene.aside("hot"), scene.hot()]))
        }),
    ];
    for (name, down) in over_hot {
        attacks.extend(on_each(Attack { name, down, ..base }));
    }
    // The same under writes: after a clean stop, an older file of one table is consistent.
    for (name, down) in [over_hot[0], over_hot[3]] {
        let of = Attack {
            name,
            down,
            loads: &[Load::Writing],
            ends: STOP,
            ..base
        };
        attacks.extend(on(&[FileSystem::Ext4, FileSystem::Btrfs], of));
    }
    if let Some(attack) = attacks.iter_mut().find(|one| one.name == "dd") {
        attack.quick = Some(Flavour::MySql97);
    }
    attacks.extend(on(
        &[FileSystem::Xfs, FileSystem::Btrfs],
        Attack {
            name: "cp_reflink",
            before: |scene| {
                // Without copy on write, as the table's file is.
                let kept = scene.data().join("d").join("hot.kept");
                run(Command::new("cp").arg("-a").args([&scene.hot(), &kept]))
            },
            down: |scene| {
                let kept = scene.data().join("d").join("hot.kept");
                run(Command::new("cp")
                    .args(["-p", "--reflink=always"])
                    .args([kept, scene.hot()]))
            },
            ..base
        },
    ));
    attacks.extend(on_each(Attack {
        name: "hard_link_changed",
        before: |scene| {
            copy_hot(scene)?;
            Ok(std::fs::hard_link(scene.hot(), kept(scene))?)
        },
        down: |scene| write_over(scene, &kept(scene)),
        ..base
    }));
    attacks.extend(on_each(Attack {
        name: "directory_restored",
        loads: BOTH_LOADS,
        before: |scene| place::copy_folder(&scene.data(), &scene.aside("data")),
        down: |scene| replace_data(scene, "data"),
        expected: COLD,
        ..ATTACK
    }));
    attacks.push(Attack {
        name: "hot_backup_restored",
        loads: BOTH_LOADS,
        live: |scene| {
            let (copy, data) = (scene.aside("backup"), scene.data());
            copies::of_running(scene.place, scene.server()?, &data, &copy)?;
            move_on(scene)
        },
        down: |scene| replace_data(scene, "backup"),
        expected: COLD,
        ..ATTACK
    });
    attacks
}

/// Empties the data directory, and copies the files from aside into it.
fn replace_data(scene: &mut Scene, aside: &str) -> Outcome {
    for entry in std::fs::read_dir(scene.data())? {
        run(Command::new("rm").arg("-rf").arg(entry?.path()))?;
    }
    run(Command::new("cp")
        .arg("-a")
        .args([scene.aside(aside).join("."), scene.data()]))
}

/// Changes that leave the bytes as they are.
fn same_bytes() -> Vec<Attack> {
    let base = Attack {
        costs_only_warmth: true,
        expected: HOT_COLD,
        ..ATTACK
    };
    let changes: [(&'static str, Expected, Step); 8] = [
        ("nothing", WARM, nothing),
        ("chmod", HOT_COLD, |scene| {
            run(Command::new("chmod").arg("0600").arg(scene.hot()))
        }),
        ("touch", HOT_COLD, |scene| {
            run(Command::new("touch").arg(scene.hot()))
        }),
        // As Kubernetes does with fsGroup at each start of a pod.
        ("owner_set", COLD, |scene| {
            run(Command::new("chown")
                .args(["-R", "root:root"])
                .arg(scene.data()))
        }),
        ("linked_and_unlinked", HOT_COLD, |scene| {
            std::fs::hard_link(scene.hot(), kept(scene))?;
            Ok(std::fs::remove_file(kept(scene))?)
        }),
        ("copied_and_renamed", HOT_COLD, |scene| {
            run(Command::new("cp")
                .arg("-a")
                .args([scene.hot(), kept(scene)]))?;
            Ok(std::fs::rename(kept(scene), scene.hot())?)
        }),
        ("directory_away_and_back", WARM, |scene| {
            let (schema, away) = (scene.data().join("d"), scene.volume.top().join("away"));
            std::fs::rename(&schema, &away)?;
            Ok(std::fs::rename(&away, &schema)?)
        }),
        ("directory_copied", COLD, |scene| {
            let (schema, copy) = (scene.data().join("d"), scene.volume.top().join("copy"));
            place::copy_folder(&schema, &copy)?;
            std::fs::remove_dir_all(&schema)?;
            Ok(std::fs::rename(&copy, &schema)?)
        }),
    ];
    let mut attacks = Vec::new();
    for (name, expected, down) in changes {
        let costs_only_warmth = name != "nothing";
        let loads = if name == "nothing" {
            BOTH_LOADS
        } else {
            base.loads
        };
        let attack = Attack {
            name,
            expected,
            down,
            loads,
            costs_only_warmth,
            ..base
        };
        attacks.extend(on_each(attack));
    }
    for attack in &mut attacks {
        attack.quick = match (attack.name, attack.file_system) {
            ("nothing", FileSystem::Ext4) => Some(Flavour::MySql97),
            ("nothing", FileSystem::Btrfs) | ("chmod", FileSystem::Ext4) => {
                Some(Flavour::MariaDb1011)
            }
            _ => None,
        };
    }
    attacks.push(Attack {
        name: "defragmented_and_balanced",
        file_system: FileSystem::Btrfs,
        down: |scene| {
            let hot = scene.hot();
            scene
                .volume
                .btrfs(&["filesystem", "defragment", "-f"], &[&hot])?;
            let folder = scene.volume.folder().to_path_buf();
            scene
                .volume
                .btrfs(&["balance", "start", "-dusage=100"], &[&folder])
        },
        expected: WARM,
        costs_only_warmth: false,
        ..base
    });
    attacks
}

const CHANGE: &[&str] = &["UPDATE d.hot SET v = v + 5 WHERE id % 3 = 0"];

/// Runs of the server without the plugin.
fn other_runs() -> Vec<Attack> {
    let base = Attack {
        loads: BOTH_LOADS,
        // After a kill, the next server recovers, and may write to any file.
        expected: expect(Warmth::Cold, Warmth::Any),
        ..ATTACK
    };
    let mut attacks = on_each(Attack {
        name: "run_without_plugin",
        down: |scene| scene.run_without_plugin(CHANGE, &[]),
        ..base
    });
    attacks[0].quick = Some(Flavour::MariaDb1011);
    attacks.extend([
        Attack {
            name: "run_without_plugin_then_remounted",
            down: |scene| {
                scene.run_without_plugin(CHANGE, &[])?;
                remount(scene)
            },
            expected: COLD,
            ..base
        },
        Attack {
            name: "forced_recovery",
            down: |scene| {
                scene.run_without_plugin(
                    &["SELECT SUM(v) FROM d.hot"],
                    &["--innodb-force-recovery=3"],
                )
            },
            expected: ANY,
            ..base
        },
        Attack {
            name: "undo_truncated",
            loads: &[Load::Idle],
            server: |scene, options| {
                Ok(match scene.place.is_mysql() {
                    true => options,
                    false => options.option("--innodb-undo-tablespaces=3"),
                })
            },
            down: truncate_undo,
            ..base
        },
        Attack {
            name: "discarded_and_imported",
            loads: &[Load::Idle],
            before: |scene| {
                let server = scene.place.start(scene.plain())?;
                let mut connection = server.connect()?;
                connection.query_drop("FLUSH TABLES d.hot FOR EXPORT")?;
                for end in ["ibd", "cfg"] {
                    let from = scene.hot().with_extension(end);
                    std::fs::copy(from, scene.aside("export").with_extension(end))?;
                }
                connection.query_drop("UNLOCK TABLES")?;
                server.stop()?;
                Ok(())
            },
            down: |scene| {
                let server = scene.place.start(scene.plain())?;
                server.sql("ALTER TABLE d.hot DISCARD TABLESPACE")?;
                for end in ["ibd", "cfg"] {
                    let from = scene.aside("export").with_extension(end);
                    std::fs::copy(from, scene.hot().with_extension(end))?;
                }
                server.sql("ALTER TABLE d.hot IMPORT TABLESPACE")?;
                server.stop()?;
                Ok(())
            },
            ..base
        },
        Attack {
            name: "hot_not_opened_over_two_starts",
            loads: &[Load::Idle],
            ends: STOP,
            before: copy_hot,
            down: |scene| {
                write_over(scene, &scene.hot())?;
                let server = scene.place.start(scene.options()?)?;
                server.sql("SELECT SUM(v) FROM d.rest")?;
                server.stop()?;
                Ok(())
            },
            expected: HOT_COLD,
            ..base
        },
        Attack {
            name: "another_server_at_equal_paths",
            loads: &[Load::Idle],
            down: |scene| {
                let server = scene.place.start(other_server(scene)?)?;
                sql::run(&server, &["UPDATE d.hot SET v = v + 9"])?;
                read_often(&server)?;
                server.stop()?;
                Ok(())
            },
            expected: ANY,
            ..base
        },
        Attack {
            name: "two_servers_at_equal_paths",
            loads: &[Load::Idle],
            live: |scene| {
                let server = scene.place.start(other_server(scene)?)?;
                sql::run(&server, &["UPDATE d.hot SET v = v + 9"])?;
                read_often(&server)?;
                let answers = Answers::of(&server)?;
                let rows = answers
                    .0
                    .iter()
                    .filter(|line| line.contains("6000"))
                    .count();
                ensure!(rows == 2, "the second server answers {answers:?}");
                server.stop()?;
                Ok(())
            },
            expected: ANY,
            ..base
        },
    ]);
    attacks
}

/// Another data directory and another cache, which a mount namespace shows at the same paths.
fn other_server(scene: &Scene) -> anyhow::Result<Options> {
    let (data, cache) = (scene.aside("other-data"), scene.aside("other-cache"));
    place::copy_folder(&filled(scene.place)?, &data)?;
    std::fs::create_dir_all(&cache)?;
    let script =
        "mount --bind \"$0\" \"$1\" && mount --bind \"$2\" \"$3\" && shift 3 && exec \"$@\"";
    let paths = [data, scene.data(), cache, scene.place.cache()].map(|path| text(&path));
    let mut words = vec!["unshare", "--mount", "sh", "-c", script];
    words.extend(paths.iter().map(String::as_str));
    let options = scene.place.options_of(&text(&scene.data()), "run-other");
    let library = scene.place.library()?;
    let options = place::extended(options, library, &scene.place.cache(), CACHE);
    Ok(options.wrapper(&words))
}

fn truncate_undo(scene: &mut Scene) -> Outcome {
    let options = (scene.attack.server)(scene, scene.plain())?;
    let options = options.option("--innodb-max-undo-log-size=10485760");
    let server = scene.place.start(options)?;
    for _ in 0..2 {
        server.sql("UPDATE d.hot SET pad = REVERSE(pad)")?;
    }
    let limit = Duration::from_secs(120);
    if scene.place.is_mysql() {
        server.sql("CREATE UNDO TABLESPACE more ADD DATAFILE 'more.ibu'")?;
        server.sql("ALTER UNDO TABLESPACE innodb_undo_001 SET INACTIVE")?;
        let state = "SELECT STATE FROM information_schema.INNODB_TABLESPACES WHERE NAME = 'innodb_undo_001'";
        sql::wait_until("the undo tablespace is empty", limit, || {
            Ok(server.value(state)?.as_deref() == Some("empty"))
        })?;
        server.sql("ALTER UNDO TABLESPACE innodb_undo_001 SET ACTIVE")?;
    } else {
        server.sql("SET GLOBAL innodb_undo_log_truncate = ON")?;
        sql::wait_until("undo is truncated", limit, || {
            server.sql("UPDATE d.hot SET v = v + 1 WHERE id < 100")?;
            let done = server.status("Innodb_undo_truncations")?;
            Ok(done.values().any(|count| count != "0"))
        })
        .map_err(|error| skip_allowed(format!("{error:#}")))?;
    }
    server.stop()?;
    Ok(())
}

fn keep_folder(from: &Path, to: &Path) -> Outcome {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir_all(to)?;
    for file in place::files_in(from) {
        place::copy_folder(&file, to)?;
    }
    Ok(())
}

/// The files of `to` become those of `from`.
fn put_back_folder(from: &Path, to: &Path) -> Outcome {
    for file in place::files_in(to) {
        std::fs::remove_file(file)?;
    }
    for file in place::files_in(from) {
        place::copy_folder(&file, to)?;
    }
    Ok(())
}

fn keep_cache_and_state(scene: &mut Scene) -> Outcome {
    keep_folder(&scene.place.cache(), &scene.aside("cache"))?;
    keep_folder(scene.place.memory(), &scene.aside("state"))
}

fn put_back_cache(scene: &mut Scene) -> Outcome {
    put_back_folder(&scene.aside("cache"), &scene.place.cache())
}

fn put_back_state(scene: &mut Scene) -> Outcome {
    put_back_folder(&scene.aside("state"), scene.place.memory())
}

/// The cache disk and the persisted state of an earlier session.
fn rolled_back_caches() -> Vec<Attack> {
    let base = Attack {
        loads: BOTH_LOADS,
        two_sessions: true,
        between: keep_cache_and_state,
        expected: ANY,
        ..ATTACK
    };
    vec![
        Attack {
            name: "cache_disk_put_back",
            proofs_may_fail: true,
            down: put_back_cache,
            ..base
        },
        Attack {
            name: "state_put_back",
            // The cache disk is newer. Proofs of overwritten pages fail.
            proofs_may_fail: true,
            down: put_back_state,
            ..base
        },
        Attack {
            name: "cache_disk_and_state_put_back",
            down: |scene| {
                put_back_cache(scene)?;
                put_back_state(scene)
            },
            ..base
        },
        Attack {
            name: "cache_disk_and_state_put_back_and_remounted",
            down: |scene| {
                put_back_cache(scene)?;
                put_back_state(scene)?;
                remount(scene)
            },
            ..base
        },
        Attack {
            name: "data_and_cache_disk_put_back",
            proofs_may_fail: true,
            file_system: FileSystem::Btrfs,
            between: |scene| {
                keep_cache_and_state(scene)?;
                let volume = &scene.volume;
                volume.snapshot(&volume.top(), &volume.folder().join("before"))
            },
            down: |scene| {
                put_back_cache(scene)?;
                let volume = &scene.volume;
                volume.put_back_subvolume(&volume.folder().join("before"), &volume.top())
            },
            ..base
        },
    ]
}

/// The token's name in a data directory.
const TOKEN: &str = "bpe.token";

fn token(scene: &Scene) -> PathBuf {
    scene.data().join(TOKEN)
}

/// A different or missing token, on a disk that was remounted after a clean stop.
fn tokens() -> Vec<Attack> {
    let base = Attack {
        ends: STOP,
        expected: COLD,
        costs_only_warmth: true,
        ..ATTACK
    };
    let changes: [(&'static str, Expected, Step); 9] = [
        ("token_missing", COLD, |scene| {
            std::fs::remove_file(token(scene))?;
            remount(scene)
        }),
        ("token_empty", COLD, |scene| {
            std::fs::write(token(scene), "")?;
            remount(scene)
        }),
        ("token_torn", COLD, |scene| {
            let mut bytes = std::fs::read(token(scene))?;
            bytes.truncate(8);
            std::fs::write(token(scene), bytes)?;
            remount(scene)
        }),
        ("token_of_another_server", COLD, |scene| {
            // A token of a data directory that another server has used.
            let other = scene.aside("other");
            place::copy_folder(&filled(scene.place)?, &other)?;
            let options = scene.place.options_of(&text(&other), "run-other");
            let (library, cache) = (scene.place.library()?, scene.aside("other-cache"));
            std::fs::create_dir(&cache)?;
            // Without a directory in memory, neither state nor token would be persisted.
            let persist = scene.place.memory().join("other");
            std::fs::create_dir(&persist)?;
            let options = place::extended(options, library, &cache, CACHE)
                .option(format!("--bpe-persist-path={}", text(&persist)));
            scene.place.start(options)?.stop()?;
            std::fs::copy(other.join(TOKEN), token(scene))?;
            remount(scene)
        }),
        ("token_a_link", COLD, |scene| {
            let elsewhere = scene.aside("token");
            std::fs::copy(token(scene), &elsewhere)?;
            std::fs::remove_file(token(scene))?;
            std::os::unix::fs::symlink(&elsewhere, token(scene))?;
            remount(scene)
        }),
        ("token_a_directory", COLD, |scene| {
            std::fs::remove_file(token(scene))?;
            std::fs::create_dir(token(scene))?;
            remount(scene)
        }),
        ("token_a_directory_not_remounted", ANY, |scene| {
            std::fs::remove_file(token(scene))?;
            Ok(std::fs::create_dir(token(scene))?)
        }),
        // Root may write to it anyway.
        ("token_read_only", ANY, |scene| {
            run(Command::new("chmod").arg("0400").arg(token(scene)))?;
            remount(scene)
        }),
        ("token_locked", ANY, |scene| {
            remount(scene)?;
            let file = std::fs::File::options().append(true).open(token(scene))?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
            scene.guards.push(Box::new(file));
            Ok(())
        }),
    ];
    let mut attacks: Vec<Attack> = changes
        .into_iter()
        .map(|(name, expected, down)| Attack {
            name,
            expected,
            down,
            ..base
        })
        .collect();
    attacks.push(Attack {
        name: "data_disk_full",
        ends: &[End::Stop, End::Kill],
        live: |scene| {
            // Ends with an error: the disk is full.
            let _ = run(Command::new("dd")
                .args(["if=/dev/zero", "bs=1M"])
                .arg(format!(
                    "of={}",
                    text(&scene.volume.folder().join("filler"))
                )));
            Ok(())
        },
        down: |scene| {
            // The copy for the right answers needs no space on this disk. The next server starts with 16 MiB of free space.
            let filler = scene.volume.folder().join("filler");
            let file = std::fs::File::options().write(true).open(filler)?;
            file.set_len(file.metadata()?.len().saturating_sub(16 << 20))?;
            Ok(())
        },
        expected: ANY,
        ..base
    });
    attacks.push(Attack {
        name: "data_directory_of_another_user",
        ends: &[End::Stop, End::Kill],
        server: |_, options| Ok(options.user("nobody")),
        before: |scene| {
            let group = "nobody:nogroup";
            run(Command::new("chmod").arg("0711").arg(scene.place.root()))?;
            run(Command::new("chown").args(["-R", group]).args([
                scene.data(),
                scene.place.cache(),
                scene.place.memory().to_path_buf(),
            ]))?;
            // The directory itself is root's; the group may write to it.
            run(Command::new("chown").arg("root:nogroup").arg(scene.data()))?;
            run(Command::new("chmod").arg("0770").arg(scene.data()))
        },
        expected: WARM,
        ..base
    });
    attacks
}

/// Mounts the second disk's directory over the schema directory.
fn bind_schema(scene: &Scene) -> anyhow::Result<Mounted> {
    let second = scene.second.as_ref().context("no second disk")?;
    Mounted::at(
        &["--bind", &text(&second.top().join("d"))],
        &scene.data().join("d"),
    )
}

/// Data files that are not in the file system of the data directory.
fn several_file_systems() -> Vec<Attack> {
    let schema = Attack {
        ends: STOP,
        before: |scene| {
            let second = Volume::create(scene.place.root(), "second", FileSystem::Ext4, DISK)?;
            place::copy_folder(&scene.data().join("d"), &second.top().join("d"))?;
            scene.second = Some(second);
            let mounted = bind_schema(scene)?;
            scene.guards.push(Box::new(mounted));
            Ok(())
        },
        ..ATTACK
    };
    let directory = Attack {
        ends: STOP,
        server: |scene, options| {
            Ok(match &scene.second {
                Some(second) if scene.place.is_mysql() => {
                    options.option(format!("--innodb-directories={}", text(&second.top())))
                }
                _ => options,
            })
        },
        before: |scene| {
            let second = Volume::create(scene.place.root(), "second", FileSystem::Ext4, DISK)?;
            let create = format!(
                "CREATE TABLE d.other (id INT UNSIGNED PRIMARY KEY, v INT UNSIGNED NOT NULL, \
                 pad VARBINARY(4000) NOT NULL, KEY (v)) ENGINE=InnoDB DATA DIRECTORY = '{}'",
                text(&second.top())
            );
            scene.second = Some(second);
            scene.run_without_plugin(
                &[
                    &create,
                    "INSERT INTO d.other SELECT * FROM d.hot",
                    "DROP TABLE d.hot",
                    "RENAME TABLE d.other TO d.hot",
                    "ANALYZE TABLE d.hot",
                ],
                &[],
            )
        },
        ..ATTACK
    };
    let put_back = |scene: &mut Scene| {
        let image = scene.aside("second");
        scene.guards.clear();
        let second = scene.second.as_mut().context("no second disk")?;
        second.unmounted(|second| second.put_back_image(&image))
    };
    let copy_second: Step = |scene| {
        let second = scene.second.as_ref().context("no second disk")?;
        second.copy_image(&scene.aside("second"))?;
        move_on(scene)
    };
    vec![
        Attack {
            name: "schema_on_another_disk",
            expected: WARM,
            ..schema
        },
        Attack {
            name: "schema_disk_remounted",
            down: |scene| {
                scene.guards.clear();
                let second = scene.second.as_mut().context("no second disk")?;
                second.unmounted(|_| Ok(()))?;
                let mounted = bind_schema(scene)?;
                scene.guards.push(Box::new(mounted));
                Ok(())
            },
            expected: COLD,
            costs_only_warmth: true,
            ..schema
        },
        Attack {
            name: "schema_disk_put_back",
            live: copy_second,
            down: |scene| {
                let image = scene.aside("second");
                scene.guards.clear();
                let second = scene.second.as_mut().context("no second disk")?;
                second.unmounted(|second| second.put_back_image(&image))?;
                let mounted = bind_schema(scene)?;
                scene.guards.push(Box::new(mounted));
                Ok(())
            },
            expected: COLD,
            ..schema
        },
        Attack {
            name: "data_directory_elsewhere",
            expected: WARM,
            ..directory
        },
        Attack {
            name: "data_directory_elsewhere_remounted",
            down: |scene| {
                let second = scene.second.as_mut().context("no second disk")?;
                second.unmounted(|_| Ok(()))
            },
            expected: HOT_COLD,
            costs_only_warmth: true,
            ..directory
        },
        Attack {
            name: "data_directory_elsewhere_put_back",
            live: copy_second,
            down: put_back,
            expected: HOT_COLD,
            ..directory
        },
    ]
}
