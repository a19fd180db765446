-- expect: ok ranks 1
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 2, n_layers = 1, n_heads = 1, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
}
