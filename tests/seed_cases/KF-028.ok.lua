-- expect: ok local layers.0.attention.wq.weight 1024,32,1,32
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 1024, n_layers = 1, n_heads = 32, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
}
