-- expect: error[divides-features] ffn_hidden_dim (150) must be divisible by tp (4)
-- expect: error[divides-heads] n_kv_heads (2) must be divisible by tp (4) | tp may be 1, 2
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, n_kv_heads = 2, vocab_size = 256, ffn_hidden_dim = 150 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { tp = 4 },
}
