# Writes C source like a large project's headers, with few functions in it. Variables: types, functions.
BEGIN {
  print "typedef unsigned int u32; typedef unsigned char u8;"
  for (s = 0; s < types; s++) {
    printf "struct t%d { struct t%d *next; u32 a[%d]; u8 tag; char name[%d];\n", s, int(s / 2), s % 7 + 1, s % 29 + 8
    print "  union { long l; double d; struct { short x, y; } p; } u; };"
    printf "enum e%d { E%d_A = %d, E%d_B, E%d_C, E%d_D = 0x%x };\n", s, s, s, s, s, s, s * 37
    printf "extern int op%d(struct t%d *self, enum e%d kind, const char *text, u32 flags);\n", s, s, s
    printf "static inline u32 get%d(const struct t%d *t, u32 i) { return t->a[i %% %d] ^ t->tag; }\n", s, s, s % 7 + 1
  }
  for (f = 0; f < functions; f++) {
    s = f * 131 % types
    printf "u32 work%d(struct t%d *t, u32 n) {\n  u32 sum = 0;\n", f, s
    printf "  for (u32 i = 0; i < n; i++) {\n    switch (i %% %d) {\n", f % 5 + 3
    for (c = 0; c < 3; c++) printf "    case %d: sum += get%d(t, i + %d) * %d; break;\n", c, s, c, f + c
    printf "    default: sum ^= i * %d + sum;\n    }\n", s
    printf "    if (op%d(t, E%d_B, \"text %d\", sum) < 0) return E%d_D;\n  }\n", s, s, f, s
    printf "  while (t->next && sum > %d) { t->u.l += sum; sum >>= 1; t->name[sum %% 8] = (char)n; }\n", f
    print "  return sum;\n}"
  }
}
