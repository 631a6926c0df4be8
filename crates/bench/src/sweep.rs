//! Files of each size by each number of threads: written, looked up, read, read at random, removed.
