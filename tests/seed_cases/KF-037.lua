-- expect: error[divides-heads] n_heads (32) must be divisible by tp (3) | tp may be 1
return require "dialects.kempnerforge" {
  world = 3,
  model = { dim = 256, n_layers = 2, n_heads = 32, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 66 },
  distributed = { tp = 3, dp_shard = 1 },
}
