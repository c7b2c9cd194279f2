"""The viewer: a run's pages, served on loopback or written as files. The only pages of editloupe."""
