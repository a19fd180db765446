return require "dialects.kempnerforge" { world = 4, as = "original",
  model = { dim = 64, n_layers = 2, n_heads = 8 },
  train = { seq_len = 4096 },
  distributed = { tp = 3 } }
