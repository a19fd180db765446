local config = { world = 2, as = "orignal", train = { seq_len = "64" }, modell = {}, distributed = 4 }
config.optimizer = { lr = 0, name = "adam" }
return require "dialects.kempnerforge"(config)
