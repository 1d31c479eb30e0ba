#![no_main]
lakemark_fuzz::target!("texts");
