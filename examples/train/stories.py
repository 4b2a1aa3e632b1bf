#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""stories.py: short stories from a grammar, the text that the embedded model is trained on.

All words here were written for this repository. A story is a setting, a hero, and one of nine
plots of five or six sentences, each in a few wordings. What a sentence names comes back later:
the hero's name, who the friend is, the thing and its colour, what an animal likes to eat. That
is what a model with a KV cache has to remember, and what makes its text readable or not.

    python3 stories.py COUNT [SEED]      prints COUNT stories, one a line
"""

import random
import sys

# Who can be the hero: kind, the name's pronouns, what it likes to eat, where it sleeps.
KINDS = [
    ("fox", "berries", "den"), ("mouse", "cheese", "nest"), ("bear", "honey", "cave"),
    ("rabbit", "carrots", "burrow"), ("hedgehog", "apples", "heap of leaves"),
    ("squirrel", "nuts", "hollow tree"), ("duck", "bread", "bed of reeds"), ("goat", "clover", "shed"),
    ("cat", "fish", "basket"), ("otter", "mussels", "river bank"), ("owl", "plums", "tall tower"),
    ("mole", "turnips", "tunnel"),
]
NAMES = [
    ("Anna", "she", "her", "her"), ("Ben", "he", "him", "his"), ("Clara", "she", "her", "her"),
    ("Dan", "he", "him", "his"), ("Ella", "she", "her", "her"), ("Finn", "he", "him", "his"),
    ("Greta", "she", "her", "her"), ("Hugo", "he", "him", "his"), ("Ida", "she", "her", "her"),
    ("Jon", "he", "him", "his"), ("Kate", "she", "her", "her"), ("Leo", "he", "him", "his"),
    ("Mia", "she", "her", "her"), ("Nick", "he", "him", "his"), ("Olga", "she", "her", "her"),
    ("Paul", "he", "him", "his"), ("Rosa", "she", "her", "her"), ("Sam", "he", "him", "his"),
]
TRAITS = ["brave", "clever", "shy", "cheerful", "careful", "curious", "patient", "proud"]
COLOURS = ["red", "blue", "green", "yellow", "white", "silver", "golden", "brown"]
THINGS = ["kite", "lantern", "boat", "drum", "scarf", "bell", "key", "hat", "spoon", "flute"]
GIFTS = ["cake", "song", "chair", "letter", "blanket", "picture", "basket", "whistle"]
BROKEN = ["bridge", "mill", "clock", "cart", "roof", "well", "gate", "fence"]

# Settings: the time and the weather, then the place. They belong together two and two.
TIMES = [
    ("It was a cold morning in winter", "the snow lay deep on the roofs"),
    ("It was a warm evening in summer", "the bees were still at work"),
    ("It was a windy day in autumn", "the leaves flew over the fields"),
    ("It was the first day of spring", "the ice on the pond was thin"),
    ("It was a quiet night in May", "the moon stood over the trees"),
    ("It was a grey day in March", "the rain fell without a sound"),
]
PLACES = [
    ("in the village by the river", "river"), ("in the forest behind the hill", "forest"),
    ("in the valley of the old mill", "valley"), ("at the harbour by the sea", "harbour"),
    ("in the garden of the tall house", "garden"), ("on the farm behind the church", "farm"),
]

OPENINGS = [
    "{time} {place}, and {weather}. {A_hero_kind} called {hero} lived there, "
    "and {he} was very {trait}.",
    "{time} {place}, and {weather}. {hero} the {kind} woke up early in {his} {home}. "
    "Everybody knew that {he} was {trait}.",
    "{time} {place}, and {weather}. In a {home} lived {a_trait} {kind} called {hero}.",
]

# A plot is a list of beats, a beat a list of wordings.
PLOTS = {
    "lost": [
        ["{hero} had {a_colour} {thing}, and {he} took it everywhere.",
         "What {hero} loved most was {a_colour} {thing}."],
        ["But that day the {thing} was gone.", "One day {he} could not find the {thing}.",
         "But when {he} looked for the {thing}, it was not there."],
        ["{He} looked under the bed and behind the door, but {he} found nothing.",
         "{He} searched the whole {home}, and then the path to the {ground}."],
        ["\"Have you seen my {thing}?\" {he} asked {friend} the {fkind}. \"It is {colour}.\"",
         "So {he} went to {friend} the {fkind}. \"My {colour} {thing} is lost,\" {he} said."],
        ["\"I saw something {colour} in the {ground},\" said {friend}. \"Come with me!\"",
         "{friend} smiled. \"I found {a_colour} {thing} this morning. I kept it for you.\""],
        ["{hero} held the {colour} {thing} and was happy again.",
         "So {hero} got the {thing} back, and gave {friend} some {ffood} as thanks."],
    ],
    "hungry": [
        ["{hero} wanted to eat {food}, but there was none in the {home}.",
         "There was no {food} left, and {hero} was hungry."],
        ["{He} walked and walked until {he} came to the {ground}.",
         "So {he} took a basket and went to look for {food}."],
        ["There {he} met {friend} the {fkind}, who was crying.",
         "On the way {he} met {friend}, {a_ftrait} {fkind}."],
        ["\"I am hungry too,\" said {friend}. \"I have not had {ffood} for days.\"",
         "\"I have too much {food},\" said {friend}, \"but what I like is {ffood}.\""],
        ["They looked together, and before night they had found {food} and {ffood}.",
         "Then {hero} remembered where the best {ffood} was, and {friend} knew about the {food}."],
        ["They sat down and ate, {hero} the {food} and {friend} the {ffood}.",
         "That evening {hero} had {food}, {friend} had {ffood}, and both were full."],
    ],
    "storm": [
        ["In the afternoon a great storm came.", "Then the sky turned black and the wind rose."],
        ["The wind took the roof of the {home}, and {hero} had nowhere to sleep.",
         "Water ran into the {home}, and {hero} had to run."],
        ["{He} knocked at the door of {friend} the {fkind}.",
         "Through the rain {he} came to the house of {friend} the {fkind}."],
        ["\"Come in,\" said {friend}. \"There is a fire, and there is {ffood}.\"",
         "\"Who is there?\" asked {friend}. \"It is {hero},\" said the {kind}, \"and I am wet.\""],
        ["They told each other stories until the storm was over.",
         "All night they listened to the rain, and neither was afraid."],
        ["In the morning {friend} helped {hero} to build a new home.",
         "The next day the sun came out, and together they mended the {home}."],
    ],
    "gift": [
        ["The next day was the birthday of {friend} the {fkind}.",
         "{friend} the {fkind} was ill, and {hero} wanted to help."],
        ["{hero} wanted to make a {gift} for {fhim}.",
         "\"I will make a {gift},\" thought {hero}, \"a {gift} that nobody has seen before.\""],
        ["{He} worked the whole day, but the {gift} did not turn out well.",
         "It was hard to make a {gift}, and {he} had to begin again three times."],
        ["But {hero} was {trait} and did not give up.",
         "\"Once more,\" said {hero}, and {he} worked until the moon rose."],
        ["When {friend} saw the {gift}, {fhe} laughed and danced.",
         "{friend} looked at the {gift} for a long time. \"For me?\" {fhe} asked."],
        ["\"This is the best {gift} in the world,\" said {friend}.",
         "And {friend} gave {hero} all the {food} that {fhe} had."],
    ],
    "broken": [
        ["The old {broken} was broken, and nobody knew what to do.",
         "One morning the {broken} fell down with a loud noise."],
        ["\"We need a new {broken},\" said {friend} the {fkind}.",
         "{friend} the {fkind} shook {fhis} head. \"The {broken} is too old,\" {fhe} said."],
        ["\"No,\" said {hero}, \"I can mend it.\" The others laughed.",
         "But {hero} went home and came back with {a_colour} box of tools."],
        ["{hero} worked on the {broken} all day, and {friend} held the light.",
         "First {he} took the {broken} apart, and then {he} counted the pieces."],
        ["In the evening the {broken} was as good as new.",
         "At last the {broken} stood again, and it was stronger than before."],
        ["From then on they called {him} {hero} the builder.",
         "\"You are not only {trait},\" said {friend}, \"you are a builder too.\""],
    ],
    "race": [
        ["{friend} the {fkind} said that {fhe} was the fastest of all.",
         "Every year {friend} the {fkind} won the race through the {ground}."],
        ["\"Let us run to the end of the {ground} and back,\" said {hero}.",
         "\"The winner gets a bag of {food},\" they said, and {hero} wanted to win it."],
        ["At first {friend} was far ahead, and {hero} came last.",
         "They ran as fast as the wind, {hero} on the left and {friend} on the right."],
        ["Then {friend} fell over a stone and hurt {fhis} foot.",
         "But half way {friend} stopped. \"I cannot go on,\" {fhe} said."],
        ["{hero} turned round and went back to help {fhim}.",
         "{hero} gave {fhim} some water and waited."],
        ["They came in together, and the bag of {food} was for both.",
         "Nobody won the race that day, but {hero} had won a friend."],
    ],
    "dark": [
        ["{hero} was afraid of the dark, and {he} told nobody.",
         "When night came {hero} could never sleep."],
        ["One night {he} saw {a_colour} light in the {ground}.",
         "Then {he} heard a strange sound from the {ground}."],
        ["\"Who is there?\" called {hero}, but nobody answered.",
         "{He} took a stick and went out, step by step."],
        ["It was only {friend} the {fkind}, who could not sleep either.",
         "Behind a tree sat {friend} the {fkind} with {a_colour} lantern."],
        ["\"I come here to look at the stars,\" said {friend}. \"Sit with me.\"",
         "\"The dark is full of small things,\" said {friend}. \"You only have to look.\""],
        ["After that {hero} was not afraid of the dark any more.",
         "They looked at the stars until morning, and {hero} was {trait} for ever after."],
    ],
    "trade": [
        ["{hero} went to the market with {a_colour} {thing}.",
         "On market day {hero} wanted to sell {a_colour} {thing}."],
        ["\"What do you want for the {thing}?\" asked {friend} the {fkind}.",
         "{friend} the {fkind} looked at the {thing}. \"It is pretty,\" {fhe} said."],
        ["\"Ten bags of {food},\" said {hero}. \"That is too much,\" said {friend}.",
         "\"I have no money,\" said {friend}, \"but I have {food}.\""],
        ["They talked until noon, and at last they shook hands.",
         "{hero} thought about it, and {he} thought about the {food}."],
        ["So {friend} got the {thing}, and {hero} went home with the {food}.",
         "{hero} took the {food}, and {friend} walked away with the {colour} {thing}."],
        ["Both were sure that they had made the better bargain.",
         "But the next day {friend} came back, and they shared the {food} and the {thing}."],
    ],
    "new": [
        ["One day a stranger came to live there, {a_fkind} called {friend}.",
         "{A_fkind} called {friend} had just come to live near the {ground}."],
        ["Nobody talked to {friend}, because nobody knew {fhim}.",
         "The others said that {friend} was strange, because {fhe} ate only {ffood}."],
        ["But {hero} took some {ffood} and went to see {fhim}.",
         "\"I will say hello,\" thought {hero}, for {he} was {trait}."],
        ["\"Do you like {ffood}?\" asked {hero}. \"I like nothing better,\" said {friend}.",
         "\"Good day,\" said {hero}. \"I am {hero} the {kind}, and I live in the {home}.\""],
        ["{friend} showed {him} {a_colour} {thing} from a land far away.",
         "They talked the whole day, about the {ground} and about the sea."],
        ["Since that day {hero} and {friend} are always seen together.",
         "\"Now I have a friend,\" said {friend}, and {fhe} played on the {thing}."],
    ],
}

ENDINGS = ["", "", " And that is the end.", " They were friends for ever.",
           " It was a good day.", " Then they all went to bed."]


def a(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def capital(text):
    return text[0].upper() + text[1:]


def story(rng):
    """One story, a line of plain ASCII."""
    kind, food, home = rng.choice(KINDS)
    fkind, ffood, _ = rng.choice([k for k in KINDS if k[0] != kind])
    (hero, he, him, his), (friend, fhe, fhim, fhis) = rng.sample(NAMES, 2)
    time, weather = rng.choice(TIMES)
    place, ground = rng.choice(PLACES)
    colour = rng.choice(COLOURS)
    trait, ftrait = rng.sample(TRAITS, 2)
    words = dict(kind=kind, food=food, home=home, fkind=fkind, ffood=ffood, hero=hero, he=he,
                 him=him, his=his, friend=friend, fhe=fhe, fhim=fhim, fhis=fhis, time=time,
                 weather=weather, place=place, ground=ground, colour=colour, trait=trait,
                 thing=rng.choice(THINGS), gift=rng.choice(GIFTS), broken=rng.choice(BROKEN),
                 He=capital(he), a_colour=a(colour), a_trait=a(trait), a_ftrait=a(ftrait),
                 a_fkind=a(fkind), A_fkind=capital(a(fkind)), A_hero_kind=capital(a(kind)))
    beats = [rng.choice(OPENINGS)] + [rng.choice(b) for b in PLOTS[rng.choice(sorted(PLOTS))]]
    return " ".join(beat.format(**words) for beat in beats) + rng.choice(ENDINGS)


def main():
    count = int(sys.argv[1])
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for _ in range(count):
        print(story(rng))


if __name__ == "__main__":
    main()
