-- expect: error[divides-seq] train.seq_len (4098) must be divisible by tp (4) | seq_len may be 4096 or 4100
return require "dialects.kempnerforge" {
  world = 4,
  model = { dim = 64, n_layers = 2, n_heads = 8, vocab_size = 256, max_seq_len = 8192 },
  train = { batch_size = 1, seq_len = 4098 },
  distributed = { tp = 4 },
}
