//! Files as the store sees them: the operating system behind one trait, mapped files, and ordered
//! runs of files that make one address space.

pub mod ahead;
pub mod anchored;
pub mod file_run;
pub mod file_size;
pub mod folder;
pub mod holes;
pub mod locks;
pub mod mapped_file;
pub mod memory;
pub mod new_files;
pub mod open_files;
pub mod os;
pub mod planted;
pub mod room;
pub mod roots;
pub mod storage;

pub use ahead::{Ahead, Bell, Front, FrontFiles};
pub use anchored::{Anchored, Moved};
pub use file_run::{FileRun, RunFile};
pub use folder::make_folder;
pub use holes::fill_holes;
pub use mapped_file::MappedFile;
pub use memory::memory_bytes;
pub use os::Os;
pub use room::Room;
pub use roots::Roots;
pub use storage::{Access, DirEntry, FileKind, FileStat, LARGEST_PAGE, Storage, StorageFile};
