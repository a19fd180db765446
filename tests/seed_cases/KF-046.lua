-- expect: ok mesh dp_shard=4
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 4, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, mixed_precision = "fp8", compile_model = false },
  distributed = { dp_shard = 4 },
}
