-- expect: ok parameters 28705462272
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 6144, n_layers = 56, n_heads = 48, n_kv_heads = 8, vocab_size = 128256, ffn_dim_multiplier = 1.3 },
  train = { batch_size = 1, seq_len = 64 },
}
