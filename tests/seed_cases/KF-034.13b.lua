-- expect: ok parameters 14840386560
return require "dialects.kempnerforge" {
  world = 8,
  model = { dim = 5120, n_layers = 40, n_heads = 40, n_kv_heads = 8, vocab_size = 128256, ffn_dim_multiplier = 1.3 },
  train = { batch_size = 1, seq_len = 64 },
}
