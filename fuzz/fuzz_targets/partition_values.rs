#![no_main]
lakemark_fuzz::target!("partition_values");
