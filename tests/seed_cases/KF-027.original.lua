-- expect: note[degree-ignored] cp = 2
-- expect: ok mesh dp_shard=2 | ranks 2 | parallel fsdp2(reshard), compile(model)
return require "dialects.kempnerforge" {
  world = 2,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256 },
  train = { batch_size = 1, seq_len = 64 },
  distributed = { cp = 2 },
  as = "original",
}
