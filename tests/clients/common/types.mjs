// The answers of the clients that have Zod, as in features.py.

import { z } from "zod";

export const Contact = z.object({ name: z.string(), email: z.string(), phone: z.string() });
export const Review = z.object({
  product: z.string(),
  rating: z.int(),
  sentiment: z.enum(["positive", "negative", "neutral"]),
  verified: z.boolean(),
});
export const Card = z.object({
  name: z.string(),
  house: z.string(),
  level: z.int(),
  wand: z.object({ wood: z.string(), core: z.string() }),
});
