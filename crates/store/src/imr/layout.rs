//! How a store is laid out, in words.

use super::devices::ImrPlace;
use super::open_store::OpenStore;
use varve_media::TrackTier;

pub(super) fn layout(core: &OpenStore) -> Vec<(&'static str, String)> {
    let (geometry, tracks) = (&core.geometry, &core.geometry.tracks);
    let tier =
        |tier: TrackTier| format!("{} {tier} tracks of {} bytes", tracks.tracks_of(tier), tracks.track_bytes(tier));
    let kind = if tracks.interlaced { "interlaced" } else { "conventional" };
    let place = |place: ImrPlace| match (place, &core.beside) {
        (ImrPlace::Beside, Some(beside)) => format!("on '{}'", beside.device.block.name()),
        _ if tracks.interlaced => "on reserved top tracks".to_owned(),
        _ => "at the start of the disk".to_owned(),
    };
    let (map, small) = (core.map_bytes, core.small_files_bytes);
    let backup = geometry.backup_bytes();
    vec![
        ("store id", format!("{:016x}", core.store_id)),
        ("tracks", format!("{kind}: {}, {}", tier(TrackTier::Bottom), tier(TrackTier::Top))),
        ("kept for the store", format!("the first {} tracks", geometry.zone_tracks)),
        ("map of tables to tracks", format!("{}, {map} bytes", place(geometry.placement.map))),
        ("logs and other small files", format!("{}, {small} bytes", place(geometry.placement.logs))),
        (
            "backup region",
            format!(
                "{} bytes in {} places of {} tracks each",
                backup.end - backup.start,
                geometry.places,
                geometry.copies_max()
            ),
        ),
        ("largest table saved at once", format!("{} bytes", geometry.table_bytes_max)),
        ("allocation", core.allocation.text().to_owned()),
        ("rewrite", core.rewrite.text().to_owned()),
    ]
}
