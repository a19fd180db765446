-- expect: error[divides-heads] dim (1000) must be divisible by n_heads (32) | dim may be 992 or 1024
return require "dialects.kempnerforge" {
  world = 1,
  model = { dim = 1000, n_layers = 1, n_heads = 32, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
}
