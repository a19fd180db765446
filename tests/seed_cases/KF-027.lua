-- expect: error[degree-ignored] cp = 2 is counted in the world of 2 ranks | the mesh would cover 1 of them
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { cp = 2 },
}
