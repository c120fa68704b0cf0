//! File access: the operating system behind one trait, mapped files, and runs of files that form
//! one address space. `remote` reads objects behind a URL. Open `system/` first. `threads.rs` runs bounded work on threads.

pub mod map;
pub mod remote;
pub mod run;
pub mod system;
pub mod threads;

pub use self::map::disk_reserve::DiskReserve;
pub use self::map::holes::{each_data, fill_holes, release_zeros, zero_out};
pub use self::map::mapped_file::MappedFile;
pub use self::map::prefault::{ActiveFiles, Prefaulter, SharedActiveFiles, Wakeup};
pub use self::map::waiters::Waiters;
pub use self::remote::{Object, Objects, Remote};
pub use self::run::file_run::FileRun;
pub use self::run::folder::{folder_at, make_folder, make_folder_outside};
pub use self::run::new_files::{copy_file, copy_tree};
pub use self::run::open_files::RunFile;
pub use self::run::roots::Roots;
pub use self::system::SystemClock;
pub use self::system::memory::memory_bytes;
pub use self::system::os::Os;
pub use self::system::pinned_storage::{Moved, PinnedStorage};
pub use self::system::resting::Resting;
pub use self::system::sparing::spare_page_cache;
pub use self::system::storage::{
    Access, DirEntry, FileKind, FileStat, Foreign, LARGEST_PAGE, Stamp, Storage, StorageFile,
    if_reached, if_there,
};
