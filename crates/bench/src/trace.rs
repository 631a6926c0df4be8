//! What a program asks of a folder, and the workload that asks the same.
