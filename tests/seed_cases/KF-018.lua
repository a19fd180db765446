-- expect: ok mesh pp=4 dp_shard=2 tp=4 | ranks 32
return require "dialects.kempnerforge" {
  world = 32,
  model = { dim = 64, n_layers = 8, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64, grad_accum_steps = 4 },
  distributed = { pp = 4, dp_shard = 2, tp = 4 },
}
