-- expect: error[divides-heads] n_heads (32) must be divisible by n_kv_heads (5) | 1, 2, 4, 8
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 256, n_layers = 1, n_heads = 32, n_kv_heads = 5, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
}
