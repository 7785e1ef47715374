// data/text/stories_grammar.c: the grammar of the stories (data/text/grammar.h says how to read it). First the shapes of a story, then sentences that
// shapes share, then words. A story has somebody, something that goes wrong, and an end that is good.
//
// A seed's text is the same for ever: whatever is changed here changes all of it, and test_stories.c says so.
//
// In all shapes A is who the story is about, B a friend, F somebody of the family, J somebody at work, D an animal, X and Y things, C a colour, P a place,
// S and T spots, N a number, G food.
#include "data/text/stories.h"

#define GIRL "/she/her/her|"
#define BOY "/he/him/his|"

// clang-format off
static const char shapes[] =
    // Lost and found.
    "[open], [child=A] lost [a colour=C] [thing=X] [near] the [place]. [child=B not A] [found] it [near] the [spot], and [brought] it back [adverb]. "
    "\"My [C] [X]!\" [said] [A], and gave [B] [a look] [thing not X]. [end]"
    // Whose is it?
    "|[open], [child=A] [found] [a look=L] [thing=X] [near] the [place]. \"Whose [X] is this?\" [A.he] asked the [job=J]. \"It belongs to "
    "[child=B not A],\" [said] the [J]. So [A] [went] to [B], and [B] got the [L] [X] back [adverb]. [end]"
    // Two who trade.
    "|[open], [child=A] had [a colour=C] [thing=X], and [child=B not A] had [a colour=K not C] [thing=Y not X]. [A] [liked] the [Y], and [B] [liked] the [X]. So they "
    "traded [near] the [spot]: now [A] has the [K] [Y], and [B] the [C] [X]. [end]"
    // One rolls away.
    "|[open], [child=A] carried [number=N] [fruit=G] to the [place]. One fell down [near] the [spot=S], and only [N.less] were left. But [a look] [animal=D] "
    "[found] it [near] the [S], and then there were [N] [G] again. The [D] got one for its [D.home]. [end]"
    // Something is missing for the cake.
    "|[open], [child=A] wanted to bake [a flavour=G] cake for [A.his] [family=F], but there was no [staple=X]. The [job] had only [staple=Y not X], not [X]. At last "
    "[child=B not A] [brought] [number] spoons of [X] from the [place]. \"It tastes of [G]!\" [said] the [F] [adverb]. [end]"
    // One umbrella for two.
    "|[open], it began to rain, and [child=A] had [a colour=C] umbrella. [^near] the [spot] stood [child=B not A], who had none and was [sad]. So both [went] to the "
    "[place] under the [C] umbrella, and [B] told [A] about [subject]. [end]"
    // An animal is stuck.
    "|[open], [child=A] heard [a sound] [near] the [spot=S]. [^a look] [animal=D] could not get out! [^A.he] pulled [adverb] with [a colour] [thing], until the [D] was "
    "free. Now [A] puts [D.treat] [near] the [S] every [weekday], and the [D] comes from its [D.home]. [end]"
    // Too shy to ask.
    "|In [a cosy] [home=H] [near] the [place] lived [a colour=C] [animal=D] called [pet=A]. The [D] was [sad], because nobody came. [open], [pet=B not A], [a look] [animal=E "
    "not D], knocked at the [H]. \"Do you like [food=G]?\" [said] the [E]. \"I love [G]!\" [said] the [D], and now they are friends."
    // A letter for somebody else.
    "|[open], [child=A] got a letter that was for the [job=J] [near] the [place=P]. On the way to the [P] [A.he] saw [number] [sight] and [a look] [animal]. \"This letter is from my "
    "[family],\" [said] the [J] [adverb], and gave [A] some [food]. [end]"
    // A seed.
    "|[open], [child=A] planted [number=N] seeds [near] the [spot=S]. [^A.his] [family=F] thought of [flower=X], and [child=B not A] thought of [flower=Y not X]. In "
    "[season] there were [N] [colour] flowers [near] the [S]. They were [which]. [end]"
    // A thief with four legs.
    "|[open], the [colour=C] [thing=X] of [child=A] was gone! [A] followed small tracks from the [spot] to the [place]. There sat [a look] [animal=D] with "
    "the [C] [X] in its [D.home]. \"Take this [food] and give me my [X],\" [said] [A] [adverb]. The [D] was [glad]. [end]"
    // Three guesses.
    "|[open], [child=A] got a box from [A.his] [family=F]. \"Is it [a thing=X]?\" asked [child=B not A]. \"Or [a thing=Y not X]?\" asked [child=E not A B]. \"No,\" "
    "[said] [A], and out came [a look] [colour=C] [thing=Z not X Y]. \"I wanted [a C] [Z] since [season],\" [said] [A] to the [F]. [end]"
    // A race.
    "|[open], [a look] [animal=D] and [a look] [animal=E not D] ran a race to the [place=P]. But [near] the [spot] sat [child=A], whose [limb=X] hurt. The [either] stopped and bound "
    "the [X] with [colour] [cloth]. So nobody won, and [A] gave [food] to the [D] and the [E]. [end]"
    // Hide and seek.
    "|[open], [child=A] and [child=B not A] played hide and seek [near] the [place]. [A] counted to [number], and [B] hid [near] the [spot=S]. There was only [a colour] "
    "[animal] [near] the [spot not S]. Then came [a sound] from the [S]. \"There you are, [B]!\" [said] [A] [adverb]. [end]"
    // A kite.
    "|[open], [child=A] made a [colour=C] kite of [cloth=X]. But the string broke, and it came down [near] the [place=P]. \"Have you seen a kite of [X]?\" [A] asked the "
    "[job=J]. \"The [C] kite hangs [near] the [spot],\" [said] the [J] [adverb]. [end]"
    // Mended.
    "|[open], [child=A] broke the [look] [thing=X] of [A.his] [family=F], and hid it [near] the [spot=S]. Then [A.he] felt [sad] and told the [F]. \"The [job=J] can mend anything,\" [said] the "
    "[F]. They took it from the [S] to the [place], and the [J] mended the [X] with [a tool]. [end]"
    // A noise in the dark.
    "|[open], [child=A] could not sleep, because of [a sound=X] [near] the [spot=S]. \"Did you hear the [X]?\" [A.he] asked [A.his] [family=F]. The [F] took [a colour] [light] and [found] "
    "[a look] [animal=D] [near] the [S]. It only wanted some [D.treat] for its [D.home]. [end]"
    // A promise.
    "|[open], [child=A] had to fetch [food=G] from the [place=P] for [A.his] [family=F]. But [child=B not A] had [a colour=C] [thing=X], and they played with the [X] until it was "
    "late. \"Oh, the [G]!\" [said] [A], and [went] to the [P] [adverb]. The [F] was [glad] about the [G]. [end]"
    // Half each.
    "|[open], [child=A] had no lunch and was [sad]. [child=B not A] had [food=G] and [food=H not G]. \"Which do you like?\" [said] [B]. \"[answer],\" [said] [A] [adverb]. They ate "
    "together [near] the [spot], and on [weekday] [A] [brought] [B] some [food not G H]. [end]"
    // Somebody new.
    "|[open], new people came to live [near] the [place], with a child called [child=A]. [A] had no friends, but [a look] [animal=D] called [pet=E]. [E] ran to [child=B not A], who played with [a colour=C] [thing=X]. "
    "\"May I hold [E]?\" [said] [B]. \"May I have the [X]?\" [said] [A] [adverb]. [end]"
    // Two colours.
    "|[open], [child=A] could find only one of [A.his] [colour=C] [pair=X]. So [A.he] wore one [C] and one [colour=K not C]. [child=B not A] [liked] the [X] so much that [B.he] wore one "
    "[colour=M not C K] and one [colour not C K M]. [^a look] [animal] [found] the lost [C] one [near] the [spot]. [end]"
    // A map.
    "|[open], [child=A] saw a map. \"Dig [near] the [spot=S] at the [place=P]!\" it said. So [A] and [child=B not A] [went] to the [P] with [a look] [thing]. [^near] the [S] they [found] a box with "
    "[number] [colour=C] [bead=X]. [B] was [glad] about the [X]. [end]"
    // Paint.
    "|[open], [child=A] helped the [job=J] to paint the [spot=S]. [A] [liked] [colour=C], and the [J] [liked] [colour=K not C]. So they asked [child=B not A]. \"[verdict]!\" [said] [B] "
    "[adverb]. Now the [S] is the finest one [near] the [place], but [A] had paint on the [limb]. [end]"
    // The play.
    "|[open], the children gave a play. [child=A] was [a colour=C] [animal=D], and [child=B not A] was [a look] [animal=E not D]. [A] forgot what to say and was [sad]. \"I am [a "
    "D],\" whispered [B]. \"I am [a C] [D],\" [said] [A], \"and I live in a [D.home]!\" The [job] clapped [adverb]. [end]"
    // From the window.
    "|[open], [child=A] [went] by [vehicle=V] to the [place]. From the [V] [A.he] counted [number=N] [sight=X], and [a look] [job=J] saw one more. \"Then there are [N.more] [X],\" [said] [A]. "
    "\"You count [adverb],\" [said] the [J], and gave [A.him] some [food]. [end]"
    // A wish.
    "|[open], [child=A] saw a star fall [near] the [place]. \"I want to [skill=X] like the [job=J],\" [said] [A] [adverb]. [^A.his] [family] heard it and asked the [J]. For [number] weeks "
    "[A] learned it [near] the [spot], and now [A.he] can [X] too. [end]"
    // At the stall.
    "|[open], [child=A] sold [food=G] to buy [a colour=C] [thing=X] for [number=N] coins. [A] had only [N.less] coins. Then [child=B not A] bought some [G] [adverb], and [A] had [N] and [went] to the "
    "[place] to get the [C] [X]. [end]"
    // A nest.
    "|[open], [child=A] saw a nest with [number=N] eggs [near] the [spot=S], and told only [child=B not A]. From one egg nothing came, but from [N.less] came little [colour=C] birds. "
    "They got [peck] [near] the [S], and in [season] [N.less] [C] birds flew to the [place]. [end]"
    // A clock stands still.
    "|[open], the clock [near] the [place] stood still. [child=A] [went] up with [a tool] and [a light], and [found] [a look] [animal=D] in a nest of [colour=C] [cloth=X]. [A] carried the [D] and "
    "its [C] [X] to the [spot]. Then the clock went on, and the [job] was [glad]. [end]"
    // Across the water.
    "|[open], [child=A], [a animal=D] and [a animal=E not D] came to a river. The boat carried only two, so first the [either] went with [A] [adverb]. On the way [A] lost [a colour=C] [thing=X]. The [D] "
    "dived for it, and the [E] dried the [C] [X]. [end]"
    // A book goes back.
    "|[open], [child=A] could not find the [colour=C] book about [subject=X]. \"Who has seen my [C] book?\" [A.he] asked [adverb]. \"It is so good,\" [said] [A.his] [family=F] [near] the [spot]. They read about [X] "
    "together and ate [food]. [end]";

// clang-format on

const grammar_rule story_rules[] = {
    {"story", "", "[shape]\n\n"},
    {"shape", "", shapes},

    // --- sentences that shapes share
    {"open", "",
     "One [weather] [daypart]|On a [weather] [daypart]|On [weekday] [daypart]|Last [season]|Early in [season]|Before [meal]|After [meal]"},
    {"end", "",
     "That night [A] dreamed of [a colour] [animal].|It was the best [weekday] of the [season].|From then on [A] was [glad].|So it all ended well."
     "|For [meal] there was [food].|All week [A] talked of nothing else.|At home [A] wrote it down [adverb].|They all had [food] for [meal].|[^meal] was late, but [A] was [glad]."},
    {"which", "", "[X], as the [F] had thought|[Y], as [B] had thought"},
    {"either", "", "[D]|[E]"},
    {"answer", "", "The [G]|The [H]"},
    {"verdict", "", "[^C]|[^K]"},

    // --- who
    {"child", "he him his",
     "Ada" GIRL "Albert" BOY "Bea" GIRL "Boris" BOY "Clara" GIRL "Carl" BOY "Dora" GIRL "David" BOY "Ella" GIRL "Emil" BOY "Flora" GIRL "Felix" BOY
     "Grace" GIRL "Gustav" BOY "Hanna" GIRL "Hugo" BOY "Ida" GIRL "Igor" BOY "Julia" GIRL "Jonas" BOY "Kate" GIRL "Kurt" BOY "Lena" GIRL "Leo" BOY
     "Mina" GIRL "Max" BOY "Nora" GIRL "Ned" BOY "Olga" GIRL "Otto" BOY "Polly" GIRL "Paul" BOY "Rosa" GIRL "Robin" BOY "Stella" GIRL "Sam" BOY
     "Tilda" GIRL "Tom" BOY "Ursula" GIRL "Urban" BOY "Vera" GIRL "Viktor" BOY "Wanda" GIRL "Will" BOY "Yvonne" GIRL "Yuri" BOY "Zoe" GIRL
     "Zack/he/him/his"},
    {"family", "he him his",
     "mother" GIRL "father" BOY "grandmother" GIRL "grandfather" BOY "aunt" GIRL "uncle" BOY "sister" GIRL "brother/he/him/his"},
    {"job", "he him his",
     "baker" BOY "miller" GIRL "farmer" BOY "teacher" GIRL "doctor" GIRL "sailor" BOY "gardener" GIRL "tailor" BOY "fisherman" BOY "carpenter" GIRL
     "smith" BOY "shepherd" BOY "painter" GIRL "cook" BOY "captain" GIRL "nurse" BOY "mayor" GIRL "grocer" BOY "potter" GIRL "weaver" BOY
     "clockmaker" GIRL "driver" BOY "singer" GIRL "plumber/she/her/her"},
    {"animal", "home treat",
     "badger/burrow/roots|bear/cave/honey|beaver/lodge/bark|crow/nest/crumbs|deer/thicket/leaves|dormouse/nest/nuts|duck/pond/oats|ferret/hole/eggs"
     "|fox/den/grapes|frog/pool/flies|goat/shed/thistles|goose/yard/barley|hare/hollow/clover|hedgehog/leaf pile/slugs|heron/swamp/minnows|lamb/fold/grass"
     "|lizard/wall/beetles|mole/tunnel/worms|mouse/hole/cheese|otter/bank/fish|owl/tree/moths|pig/sty/acorns|pony/stable/hay|rabbit/warren/carrots"
     "|seal/bay/herrings|sparrow/hedge/seeds|squirrel/oak/hazelnuts|swan/lake/waterweed|toad/ditch/snails|turtle/log/lettuce|weasel/den/plums|wolf/lair/stew"},
    {"pet", "",
     "Biscuit|Button|Captain|Clover|Dandy|Dumpling|Fidget|Ginger|Hazel|Jumper|Muffin|Noodle|Patch|Pepper|Pickle|Rusty|Smoky|Snowball|Trip|Whisker"},

    // --- where and when
    {"place", "",
     "airfield|bakery|barn|beach|bridge|brook|castle|cave|church|dairy|farm|forest|garden|harbour|inn|lighthouse|library|market|meadow|mill|museum|orchard"
     "|palace|park|quarry|school|shipyard|station|theatre|tower|valley|village|vineyard|well|windmill|workshop|zoo"},
    {"spot", "",
     "anvil|apple tree|barrel|bathtub|bench|bookcase|bush|cart|chest|cupboard|desk|drain|fence|gate|haystack|hedge|kennel|ladder|log|mat|oven|piano|pillar|pump"
     "|rock|rug|sack|shelf|sink|sofa|stairs|statue|stove|table|trough|trunk|wagon|wardrobe|woodpile"},
    {"home", "", "burrow|cave|cottage|den|hollow|house|hut|nest|shed|stable|tent|tunnel"},
    {"near", "", "behind|beside|by|close to|in front of|near|next to|not far from|to the left of|to the right of"},
    {"weekday", "", "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday"},
    {"daypart", "", "morning|afternoon|evening|day"},
    {"season", "", "spring|summer|autumn|winter"},
    {"meal", "", "breakfast|lunch|tea|dinner|supper"},
    {"weather", "", "bright|chilly|clear|cloudy|cold|dry|foggy|frosty|grey|hot|mild|misty|rainy|snowy|stormy|sunny|warm|windy"},

    // --- what
    {"thing", "",
     "apron|balloon|basket|bell|blanket|book|bottle|bracelet|broom|brush|bucket|button|camera|candle|coin|comb|compass|crayon|crown|cup|doll|drum|fan"
     "|feather|flag|flute|globe|glove|hammer|hat|horn|jar|jug|kettle|key|ladle|lamp|lantern|locket|magnet|marble|mask|mirror|mug|needle|net|paddle|pebble"
     "|pencil|pillow|plate|puppet|purse|puzzle|quilt|rattle|ribbon|ring|rope|ruler|saddle|scarf|shell|shovel|sled|slipper|spoon|stamp|teapot|thimble"
     "|ticket|toy|trumpet|vase|violin|watch|whistle|wreath|yo-yo"},
    {"look", "",
     "big|broad|curious|dusty|fine|funny|handsome|heavy|huge|little|muddy|narrow|new|odd|old|plain|pretty|queer|round|short|slim|small|smooth|spotted|strange|striped|thick|tiny|wet"},
    {"colour", "",
     "black|blue|bronze|brown|crimson|golden|green|grey|ivory|lilac|olive|orange|pink|purple|red|scarlet|silver|turquoise|violet|white|yellow"},
    {"number", "less more",
     "three/two/four|four/three/five|five/four/six|six/five/seven|seven/six/eight|eight/seven/nine|nine/eight/ten|ten/nine/eleven|twelve/eleven/thirteen"},
    {"food", "",
     "beans|berries|biscuits|bread|butter|cake|carrots|cheese|cherries|cucumber|currants|custard|dates|dumplings|figs|ginger|grapes|honey|jam|jelly|melon"
     "|noodles|nuts|olives|pancakes|pasta|peas|pie|plums|popcorn|porridge|pudding|radishes|raisins|rice|rolls|salad|soup|toast|waffles"},
    {"fruit", "",
     "apples|apricots|buns|chestnuts|eggs|figs|lemons|melons|onions|oranges|peaches|pears|plums|potatoes|pumpkins|tomatoes|turnips|walnuts"},
    {"flavour", "", "almond|apple|banana|cherry|chocolate|coconut|honey|lemon|nut|orange|peach|pear|plum|poppy|raspberry|vanilla"},
    {"staple", "", "butter|cinnamon|cocoa|cream|flour|malt|milk|oil|salt|starch|sugar|yeast"},
    {"flower", "", "asters|bluebells|daisies|irises|lilies|marigolds|pansies|poppies|roses|snowdrops|sunflowers|tulips|violets"},
    {"limb", "", "ankle|arm|chin|ear|elbow|finger|foot|hand|heel|knee|leg|nose|shoulder|thumb|toe|wrist"},
    {"cloth", "", "cotton|felt|fur|lace|linen|paper|rags|silk|straw|string|velvet|wool"},
    {"tool", "", "bolt|clamp|file|hook|nail|pin|saw|screw|spanner|spring|strap|wedge|wire"},
    {"light", "", "candle|lamp|lantern|torch"},
    {"pair", "", "boots|clogs|gloves|mittens|sandals|shoes|slippers|socks|stockings"},
    {"bead", "", "beads|buttons|coins|corks|dice|feathers|keys|marbles|pearls|pebbles|rings|shells|stamps|stars|tickets"},
    {"sight", "", "bicycles|boats|bridges|carts|chimneys|cows|geese|haystacks|horses|ladders|mills|sheep|ships|steeples|swans|tents|towers|wagons"},
    {"subject", "",
     "bees|castles|comets|deserts|dragons|giants|ghosts|islands|kings|knights|magnets|oceans|pirates|robots|rockets|stars|trains|volcanoes|whales|wizards"},
    {"vehicle", "", "boat|bus|cart|coach|ferry|lorry|sled|train|tram"},
    {"peck", "", "berries|crumbs|flies|oats|seeds|worms"},

    // --- what they do, and how
    {"said", "", "answered|called|cried|explained|laughed|murmured|replied|said|whispered"},
    {"found", "", "came upon|caught sight of|discovered|found|noticed|spied|spotted"},
    {"brought", "", "brought|carried|handed|took"},
    {"went", "", "crept|cycled|hurried|marched|ran|rode|skipped|strolled|walked|went"},
    {"liked", "", "admired|adored|fancied|liked|loved|preferred|wanted"},
    {"adverb", "",
     "at once|boldly|bravely|calmly|carefully|cheerfully|eagerly|firmly|gently|gladly|happily|kindly|merrily|neatly|patiently|politely|proudly|quickly|quietly|shyly|slowly|softly"
     "|swiftly|warmly|with a bow|with a smile|without a word"},
    {"glad", "", "cheerful|content|delighted|glad|happy|merry|pleased|proud|thankful"},
    {"sad", "", "afraid|cross|downcast|gloomy|lonely|lost|sad|sorry|tired|troubled|unhappy|upset|worried"},
    {"cosy", "", "cosy|dry|neat|quiet|safe|snug|soft|warm"},
    {"sound", "", "buzz|click|creak|crunch|hum|knock|rattle|rustle|scratch|splash|squeak|tap|thump|whistle"},
    {"skill", "", "cook|dance|draw|fish|juggle|knit|paint|read|ride|row|sew|sing|skate|ski|swim|whistle|yodel"},
};
const int story_rule_count = sizeof story_rules / sizeof *story_rules;
