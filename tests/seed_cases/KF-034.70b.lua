-- expect: ok parameters 70553706496
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 8192, n_layers = 80, n_heads = 64, n_kv_heads = 8, vocab_size = 128256, ffn_hidden_dim = 28672 },
  train = { batch_size = 1, seq_len = 64 },
}
