-- expect: ok local layers.0.attention.wq.weight 64,1,8,8
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 64, n_layers = 2, n_heads = 8, n_kv_heads = 1, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
}
